"""Flows in a simulation: faulty workers, clients that send signals, and a reference interpreter."""
