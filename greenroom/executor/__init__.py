"""The process of an executor: it attaches to an engine and executes bodies for it."""
