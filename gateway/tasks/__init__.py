"""The compatible API for tasks and workers, for existing clients."""
