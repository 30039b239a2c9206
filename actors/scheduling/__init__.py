"""Scheduling: admission, handles, lanes, and the order in which runs start."""
