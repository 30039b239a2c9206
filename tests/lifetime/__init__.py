"""The start and the end of an engine: what its block raises, and what remains."""
