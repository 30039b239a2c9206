"""What asyncio code has of trio: calls across threads, and bodies that execute in an asyncio loop."""
