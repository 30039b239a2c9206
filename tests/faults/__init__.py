"""Guarantees under faults: a killed process, a lost commit, an outage of the store, or a store that cannot be
opened.

`killed.py` is the program that `test_kill.py` kills; most other tests need no separate program.
"""
