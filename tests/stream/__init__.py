"""The one ordered story: its events, and the snapshots that they lead from and to."""
