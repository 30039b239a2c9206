"""The tests of Greenroom. `python3 -m tests` runs them and needs nothing but Python."""
