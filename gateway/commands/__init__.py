"""The commands, one entry each, that WebSocket and HTTP both offer."""
