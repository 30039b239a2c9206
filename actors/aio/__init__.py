"""The bridge between trio and asyncio: calls across threads, and bodies that execute in an asyncio loop."""
