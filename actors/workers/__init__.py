"""Workers: who does the work of a flow's nodes elsewhere, how it gets to them, and what comes back."""
