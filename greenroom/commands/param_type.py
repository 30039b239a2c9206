"""`ParamType[T]`, the base of what options are converted to.

Click's own class takes a type parameter only since 8.2; the oldest Click that Greenroom supports is older.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from click import ParamType
else:
    import click

    class ParamType(click.ParamType):
        """Click's class, which may be subscripted."""

        def __class_getitem__(cls, item: Any) -> type[click.ParamType]:
            return click.ParamType


__all__ = ["ParamType"]
