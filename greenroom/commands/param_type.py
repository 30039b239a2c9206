"""`ParamType[T]`, the base class of parameter types.

Click's class has a type parameter only since 8.2, and Greenroom supports older versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from click import ParamType
else:
    import click

    class ParamType(click.ParamType):
        """Click's class with support for a subscript."""

        def __class_getitem__(cls, item: Any) -> type[click.ParamType]:
            return click.ParamType


__all__ = ["ParamType"]
