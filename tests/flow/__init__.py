"""Flows: their definitions, and what runs them."""
