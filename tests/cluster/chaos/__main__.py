"""`python -m tests.cluster.chaos --rounds 50`: the long form."""

import argparse
import json
import logging
import tempfile
from functools import partial
from pathlib import Path

import trio

from tests.servers import MariaDB, PostgreSQL

from .rounds import play

parser = argparse.ArgumentParser(prog="python -m tests.cluster.chaos", description=__doc__)
parser.add_argument("--rounds", type=int, default=50)
parser.add_argument("--seed", default="chaos", help="another one selects other moments and orders")
parser.add_argument("--lease-ttl", type=float, default=3.0, help="seconds after which a leader is replaced")
parser.add_argument("--executor-ttl", type=float, default=6.0, help="seconds after which an executor is lost")
parser.add_argument("--only", help="names of faults for all rounds, such as kill_leader,step_down")
parser.add_argument("--server", choices=["postgresql", "mariadb"], default="postgresql")
parser.add_argument("--folder", type=Path, help="where the logs and marks remain")
given = parser.parse_args()
logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
logging.getLogger("greenroom.client").setLevel(logging.ERROR)
folder = given.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
folder.mkdir(parents=True, exist_ok=True)
print(f"logs and marks: {folder}", flush=True)
only = (given.only.split(",") * given.rounds)[: given.rounds] if given.only else []
server = PostgreSQL() if given.server == "postgresql" else MariaDB()
try:
    server.initialize()
    server.start()
    ttls = {"lease_ttl": given.lease_ttl, "executor_ttl": given.executor_ttl}
    counts = trio.run(partial(play, folder, server, given.rounds, seed=given.seed, only=only, **ttls))
finally:
    server.close()
print(json.dumps(counts, indent=2))
