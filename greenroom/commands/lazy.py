"""Commands that are imported when they are called for, and not before: a list of them is soon there."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyCommand(click.Command):
    """Stands for a command until that is called for; a list of commands needs no more than its sentence."""

    def __init__(self, name: str, module: str, sentence: str) -> None:
        super().__init__(name, short_help=sentence)
        self._module = module

    @classmethod
    def each(cls, modules: Mapping[str, Mapping[str, str]]) -> list[click.Command]:
        """The commands that are in some modules of this package, each with the first sentence of its help."""
        return [
            cls(name, module, sentence)
            for module, commands in modules.items()
            for name, sentence in commands.items()
        ]

    def load(self) -> click.Command:
        """The command itself: in its module, a name that Python has for itself ends with `_`."""
        module = import_module(f".{self._module}", __package__)
        name = str(self.name)
        command: click.Command = getattr(module, name, None) or getattr(module, f"{name}_")
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        return self.load().make_context(*args, **kwargs)
