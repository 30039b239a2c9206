"""Bugs that hunts have found: for each, the smallest scenario and a seed that shows it."""
