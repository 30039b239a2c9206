"""The stores: the contract of every kind, the cost of a commit, and the recovery of an engine."""
