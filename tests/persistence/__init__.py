"""Persistence: addresses, databases, locks and stores, on real files and real servers."""
