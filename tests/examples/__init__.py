"""Examples: one short, complete program per capability.

Each runs as `python -m tests.examples.NAME` and prints the text below `# Output:` at its end;
`test_examples.py` runs them all and compares.
"""
