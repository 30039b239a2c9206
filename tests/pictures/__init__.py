"""The pictures of the documentation, drawn from the code: `python -m tests.pictures` writes them.

`svg` has the shapes and the style, `layout` places the nodes of a graph, the other modules draw pictures.
The tests compare what is in `docs/pictures/` with what would be drawn.
"""
