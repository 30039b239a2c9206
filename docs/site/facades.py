"""Documents the methods of `greenroom.aio` and `greenroom.sync` as the methods of trio that they call.

Those classes wrap methods of the trio API one by one: `cancel = method(api.Engine.cancel)`. Without this
extension of griffe, which reads the sources for mkdocstrings, they would be attributes without arguments or
docstring.
"""

from __future__ import annotations

from typing import Any

import griffe

_AWAITED = {"method", "look"}
_WRAPPERS = {*_AWAITED, "iterating", "opening", "_blocking", "_submitting"}
_MODULES = ("aio.engine", "aio.client", "actors.aio.run", "sync")


class Facades(griffe.Extension):
    """Replaces each attribute that wraps a function by a function like it."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Called when the whole package is loaded."""
        for name in _MODULES:
            module = pkg[name]
            for owner in (module, *module.classes.values()):
                for member in list(owner.attributes.values()):
                    wrapped = _wrapped(member)
                    if wrapped:
                        owner.set_member(member.name, _like(loader.modules_collection[wrapped], member))


def _wrapped(member: griffe.Attribute) -> str | None:
    """The path of the function that is wrapped, if one is."""
    call = member.value
    if isinstance(call, griffe.ExprCall) and str(call.function) in _WRAPPERS:
        function = call.arguments[0]
        return function.canonical_path if isinstance(function, griffe.Expr) else None
    return None


def _like(function: griffe.Object | griffe.Alias, member: griffe.Attribute) -> griffe.Function:
    found = function.final_target if isinstance(function, griffe.Alias) else function
    assert isinstance(found, griffe.Function), found
    made = griffe.Function(
        member.name,
        lineno=member.lineno,
        endlineno=member.endlineno,
        parameters=found.parameters,
        returns=found.returns,
        docstring=found.docstring,
        runtime=member.runtime,
    )
    made.overloads = found.overloads
    if isinstance(member.value, griffe.ExprCall) and str(member.value.function) in _AWAITED:
        made.labels.add("async")
    return made
