"""A run: its machine, its actor, and its bodies."""
