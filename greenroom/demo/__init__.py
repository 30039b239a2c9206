"""The demos, on a real engine and gateway.

`scenario` mirrors accounts from a small HTTP server (`site`) with a job (`mirroring`), shown by `display`.
`ordering` runs a flow with `workers`.
"""
