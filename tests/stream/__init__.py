"""The stream of events, and the snapshots before and after them."""
