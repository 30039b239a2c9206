"""Mutants that nothing can tell from the original, by module: the function, the change, and the reason."""

from __future__ import annotations

EQUIVALENT: dict[str, dict[str, str]] = {
    "actors/scheduling/order.py": {
        "Order._offer: 0 → 1": "a lane is offered again at the same place; the second entry is outdated when it "
        "comes, so only memory is lost",
    },
    "actors/scheduling/admission.py": {
        "Admission._is_repeat: return False → return None": "the caller only looks whether it is true",
        "Admission.commit_start: 1 → 2": "any number below 0 says that nothing of this turn is about the run",
    },
}
