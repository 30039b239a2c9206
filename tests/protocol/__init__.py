"""The protocol: pure data and functions."""
