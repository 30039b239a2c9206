"""Flows as data: parsing, checking, evaluating and drawing of definitions. Nothing here runs a flow.

`check` turns a definition into a `Graph` or into the list of all its errors. The code that walks the graph
evaluates its paths and expressions. Nothing here does I/O; the only exceptions are the errors of `protocol`.
"""
