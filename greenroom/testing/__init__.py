"""Tools for tests of jobs, as a pytest plugin: fixtures that open engines, and reports of failed simulations.

pytest loads `plugin` automatically. `engines` has the types of the fixtures' values.
"""
