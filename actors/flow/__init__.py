"""Flows: graphs that a run walks. The walk is the body of an ordinary run of the job `flow`."""
