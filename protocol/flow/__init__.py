"""Flows as data: how a definition is written, checked, evaluated and drawn. Nothing here runs one.

`check` turns what someone wrote into a `Graph` or into all of its mistakes; whoever walks the graph asks its
paths and expressions for values. Nothing here does I/O or raises anything but the errors of `protocol`.
"""
