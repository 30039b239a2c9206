"""HTTP: connections, requests and responses, and what is served in addition to commands."""
