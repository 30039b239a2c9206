"""Conformance vectors for the fold: a snapshot, the events after it, and the snapshot that they lead to.

The files in `docs/reference/conformance/` are for the authors of clients. `stories.py` makes them with a real
engine; the tests fold them with every implementation that this project has.
"""
