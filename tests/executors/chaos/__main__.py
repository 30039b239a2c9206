"""`python -m tests.executors.chaos --rounds 100`: the long form."""

import argparse
import json
import logging
import tempfile
from functools import partial
from pathlib import Path

import trio

from .rounds import play

parser = argparse.ArgumentParser(prog="python -m tests.executors.chaos", description=__doc__)
parser.add_argument("--rounds", type=int, default=100)
parser.add_argument("--seed", default="chaos", help="another one selects other moments and orders")
parser.add_argument("--ttl", type=float, default=6.0, help="seconds after which a silent executor is lost")
parser.add_argument("--only", help="the name of a fault for all rounds, such as kill_engine")
parser.add_argument("--folder", type=Path, help="where the logs and marks remain")
given = parser.parse_args()
logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
logging.getLogger("greenroom.client").setLevel(logging.ERROR)
folder = given.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
folder.mkdir(parents=True, exist_ok=True)
print(f"logs and marks: {folder}", flush=True)
only = [given.only] * given.rounds if given.only else []
counts = trio.run(partial(play, folder, given.rounds, ttl=given.ttl, seed=given.seed, only=only))
print(json.dumps(counts, indent=2))
