"""Mutants that nothing can tell from the original, by module: the function, the change, and the reason."""

from __future__ import annotations

EQUIVALENT: dict[str, dict[str, str]] = {}
