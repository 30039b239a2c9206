"""The calls of existing clients and workers of flows."""
