"""The errors of a configuration, each with its file and line, variable or flag."""

from __future__ import annotations

import attrs

from ..protocol.errors import Invalid


@attrs.frozen
class Mistake:
    """One error: where the value is set, which setting it is, and what is accepted."""

    origin: str
    path: str
    text: str

    def __str__(self) -> str:
        setting = f"{self.path} {self.text}" if self.path else self.text
        return f"{self.origin}: {setting}" if self.origin else setting


class ConfigMistakes(Invalid):
    """Raised for a configuration with errors; contains all of them."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__("\n".join(map(str, mistakes)), errors=[str(mistake) for mistake in mistakes])
        self.mistakes = mistakes
