"""The simulation: that it decides everything, forgets nothing, and finds what is wrong."""
