"""Benchmarks: the cost of the engine, compared with programs that do the same without it.

Each module named in `__main__.BENCHMARKS` is one benchmark. The first line of its docstring is its title, and
its `measure()` yields a `Figure` for each measurement. A figure contains the required value and whether it is
reached. It is not an assertion, because results depend on what else the machine does.
"""
