"""Remote workers: programs that do the work of flows' nodes, wherever they run.

`greenroom worker module:services` runs one. It tells the server where it is and what it serves; then the
server calls it (*push*), or it fetches work from the server's queue (*pull*). Nothing here knows the engine:
a worker and a server share only what they say to each other over HTTP.
"""
