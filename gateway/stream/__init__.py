"""Snapshots and events for subscribers, under their filters."""
