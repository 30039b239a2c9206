"""WebSocket connections: frames, sessions and the writer."""
