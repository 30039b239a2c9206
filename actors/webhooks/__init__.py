"""Webhooks: which runs have them, and the delivery of their events."""
