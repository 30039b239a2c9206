"""The actor that commits: changes, batches, and the stream of events."""
