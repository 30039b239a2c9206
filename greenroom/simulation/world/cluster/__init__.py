"""A simulated cluster: nodes on one store, and the network between them."""
