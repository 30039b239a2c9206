"""The web console: how it is served, its modules, and its pages in a real browser."""
