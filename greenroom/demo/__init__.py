"""The demos, on a real engine and gateway.

`scenario` mirrors accounts from a small HTTP server (`site`) with a job (`mirroring`), shown by `display`.
`ordering` runs a flow with `workers`. `takeover` kills the leader of a cluster, whose `nodes` execute the job
in `node_jobs` and share a store, by default on a private server (`postgresql`).
"""
