"""Bugs that the hunt has found, each as the smallest scenario that shows it, under a seed that did."""
