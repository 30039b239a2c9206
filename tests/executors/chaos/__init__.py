"""Executors that are killed, stopped, cut off and replaced, with real processes."""
