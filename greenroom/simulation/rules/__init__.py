"""The engine's rules, checked against everything that happens in a simulation."""
