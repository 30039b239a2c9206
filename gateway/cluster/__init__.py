"""The nodes of a cluster: the leader's connections to its followers, and what a follower serves."""
