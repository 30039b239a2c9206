"""Executors: processes that execute bodies for an engine."""
