"""The built-in scenarios: clients, bodies and faults."""
