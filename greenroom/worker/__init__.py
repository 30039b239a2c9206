"""Remote workers: processes that execute the work of flow nodes.

`greenroom worker module:services` runs one. The worker registers its URL and its services at the server. Then
either the server calls it (*push*), or it polls the server's queue for work (*pull*). A worker does not use
the engine; it communicates with the server only over HTTP.
"""
