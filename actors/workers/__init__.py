"""Workers: processes that execute the work of a flow's nodes, and how work and results are exchanged."""
