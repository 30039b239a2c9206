"""A lane's queue: runs in the order of their places, which is nearly always the order of arrival."""

from __future__ import annotations

from bisect import bisect_left


class PlaceQueue:
    """Runs by place. Appending, removing the first run and lookups are fast at any length."""

    def __init__(self) -> None:
        self._places: list[int] = []  # sorted; the first `_removed` are removed
        self._removed = 0
        self._runs: dict[int, str] = {}
        self._place_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, run: str) -> bool:
        return run in self._place_of

    def add(self, run: str, place: int) -> None:
        """Add a run at its place."""
        self._runs[place] = run
        self._place_of[run] = place
        if not self._places or place > self._places[-1]:
            self._places.append(place)
        else:
            self._places.insert(bisect_left(self._places, place, self._removed), place)

    def remove(self, run: str) -> None:
        """Remove a run."""
        place = self._place_of.pop(run)
        del self._runs[place]
        position = bisect_left(self._places, place, self._removed)
        if position > self._removed:
            del self._places[position]
            return
        self._removed += 1
        if self._removed > 64 and self._removed * 2 > len(self._places):
            del self._places[: self._removed]
            self._removed = 0

    def place_of(self, run: str) -> int:
        """The place of a run."""
        return self._place_of[run]

    def before(self, place: int) -> int:
        """The number of runs before a place."""
        return bisect_left(self._places, place, self._removed) - self._removed

    def first(self) -> tuple[int, str] | None:
        """The lowest place and its run."""
        if not self._runs:
            return None
        place = self._places[self._removed]
        return place, self._runs[place]
