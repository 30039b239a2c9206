"""The search for a seed that fails: by sampling, by shrinking, and exhaustively."""
