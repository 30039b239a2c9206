"""Flows in a simulation: workers that fail, people who signal, and a plain interpretation to compare with."""
