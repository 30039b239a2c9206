"""Commands that are imported only when they are called, so that the list of commands is fast."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyCommand(click.Command):
    """A placeholder for a command, with its name and the first sentence of its help."""

    def __init__(self, name: str, module: str, sentence: str) -> None:
        super().__init__(name, short_help=sentence)
        self._module = module

    @classmethod
    def each(cls, modules: Mapping[str, Mapping[str, str]]) -> list[click.Command]:
        """The commands of these modules of this package."""
        return [
            cls(name, module, sentence)
            for module, commands in modules.items()
            for name, sentence in commands.items()
        ]

    def load(self) -> click.Command:
        """Import the command. In its module, a name has `_` instead of `-`, and one that is a Python built-in
        ends with `_`."""
        module = import_module(f".{self._module}", __package__)
        name = str(self.name).replace("-", "_")
        command: click.Command = getattr(module, name, None) or getattr(module, f"{name}_")
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        return self.load().make_context(*args, **kwargs)
