"""The engine as a whole: opening, calls, recovery and shutdown."""
