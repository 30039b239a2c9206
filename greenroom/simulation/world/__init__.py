"""The simulated world: servers, their disks, the network between them, and the trace of it all."""
