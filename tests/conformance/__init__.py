"""Conformance vectors for the fold: a snapshot, the events after it, and the resulting snapshot.

The files in `docs/reference/conformance/` are for authors of clients. `stories.py` creates them with a real
engine. The tests fold them with every implementation of this project.
"""
