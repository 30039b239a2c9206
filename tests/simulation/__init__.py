"""Tests of the simulation: it is deterministic, it checks every rule, and it finds bugs."""
