"""The web console: its modules, its libraries, and its pages in a real browser. How it is served is tested in
`tests/gateway/test_console.py`."""
