"""Greenroom in asyncio programs."""
