"""What subscribers are sent: snapshots and events, under their filters."""
