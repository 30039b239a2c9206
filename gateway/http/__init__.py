"""HTTP: connections, requests and their answers, and what is served besides commands."""
