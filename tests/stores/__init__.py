"""The stores: what each kind promises, what a commit costs, and how an engine goes on after a restart."""
