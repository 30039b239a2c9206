"""The README and the tutorials as a newcomer uses them: a fresh clone, an empty environment, not root."""
