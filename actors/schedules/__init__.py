"""Schedules: runs that the engine submits at due times."""
