"""Hunt with a scenario, and print the result as JSON. Run with a copy of the package that contains a bug."""

import json
import sys

from greenroom.simulation.scenarios.by_name import find
from greenroom.simulation.search.hunting import search
from greenroom.simulation.simulate import Game


def main() -> None:
    name, first_seed, seconds, processes = json.loads(sys.argv[1])
    found = search(Game(find(name)), first_seed=first_seed, seconds=seconds, processes=processes)
    failed = None if found.failed is None else [found.failed.seed, found.failed.invariant]
    print(json.dumps([failed, found.seeds, round(found.seconds, 1)]))


if __name__ == "__main__":
    main()
