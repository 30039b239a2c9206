"""Benchmarks: what the engine costs, measured side by side with what it would cost without it.

Each module named in `__main__.BENCHMARKS` is one benchmark: its docstring says in one line what it is about,
and its `measure()` yields a `Figure` for each thing that it measured. A figure says what is required of it
and whether it passes, and nothing fails because of it: a machine that is busy with something else would only
make such a test lie.
"""
