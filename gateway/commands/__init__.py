"""The commands of the gateway, for WebSocket and HTTP; one table entry for each command."""
