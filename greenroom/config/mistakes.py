"""What is wrong with a configuration: all of it at once, each thing with the place where it is written."""

from __future__ import annotations

import attrs

from ..protocol.errors import Invalid


@attrs.frozen
class Mistake:
    """One thing that is wrong: where it is written, which setting it is, and what would fit."""

    origin: str
    path: str
    text: str

    def __str__(self) -> str:
        setting = f"{self.path} {self.text}" if self.path else self.text
        return f"{self.origin}: {setting}" if self.origin else setting


class ConfigMistakes(Invalid):
    """The configuration has mistakes: all of them."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__("\n".join(map(str, mistakes)), errors=[str(mistake) for mistake in mistakes])
        self.mistakes = mistakes
