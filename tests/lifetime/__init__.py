"""How an engine begins and how it ends: what comes out of its block, and what is left behind."""
