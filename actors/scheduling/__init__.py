"""Who starts next, and everything that decides it: lanes, handles, admission."""
