"""Persistence: the stores, and the files that runs write."""
