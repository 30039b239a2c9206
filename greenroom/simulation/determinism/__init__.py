"""Determinism: the clock, the scheduler and all random numbers of a simulation depend on one seed."""
