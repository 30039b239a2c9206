"""The rules of DESIGN.md, checked against everything that happens in a simulation."""
