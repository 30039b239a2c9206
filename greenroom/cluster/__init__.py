"""The nodes of a cluster: election, leading and following, and the node's own executor."""
