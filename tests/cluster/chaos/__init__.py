"""Clusters of real processes on a real database, in which processes, networks and the database fail."""
