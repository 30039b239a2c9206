"""A flow: a graph of nodes that a run walks, published once and run many times.

Its nodes call functions of this program and write their outputs into `shared`, which becomes the result. A
choice selects the next node, and a foreach calls a function for each item.
"""

import trio

from greenroom import Jobs, open_engine

jobs = Jobs()

ORDER = """
start: total
nodes:
  total: {kind: local, func: add, prep: {input_key: $params.prices}, post: {output_key: total}}
  size:
    kind: choice
    choice_cases: [{action: large, expr: total gt 100}]
  discount:
    kind: foreach
    func: reduce
    params: {percent: 10}
    prep: {input_key: $params.prices}
    post: {output_key: reduced}
edges:
  - {from: total, to: size}
  - {from: size, action: large, to: discount}
"""


@jobs.function("add")
async def add(numbers: list[float]) -> float:
    return sum(numbers)


@jobs.function("reduce")
async def reduce(price: float, params: dict) -> float:
    return price * (100 - params["percent"]) / 100


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        await engine.flows.publish("order", ORDER)

        small = await engine.flows.start("order", params={"prices": [20, 5]})
        print("small:", await small.result())

        large = await engine.flows.start("order", params={"prices": [60, 80]})
        print("large:", await large.result())
        for row in await engine.flows.node_runs(large.id):
            branch = "" if row.branch is None else f" {row.branch}"
            print(f"  {row.node}{branch}: {row.status}, {row.output}")


if __name__ == "__main__":
    trio.run(main)

# Output:
# small: {'total': 25}
# large: {'total': 140, 'reduced': [54.0, 72.0]}
#   total: ok, 140
#   size: ok, None
#   discount 0: ok, 54.0
#   discount 1: ok, 72.0
#   discount: ok, [54.0, 72.0]
