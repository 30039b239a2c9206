"""A published version of a flow never changes, and a run stays with the version that it started with.

A definition with errors is refused, and the error lists all of them.
"""

import trio

from greenroom import Jobs, open_engine
from greenroom.errors import Invalid


def greeting(text: str) -> dict:
    return {
        "start": "wait",
        "nodes": {
            "wait": {"kind": "timer", "params": {"delay_ms": 1000}},
            "greet": {
                "kind": "choice",
                "prep": {"input_map": {"text": text}},
                "post": {"output_key": "greeting"},
            },
        },
        "edges": [{"from": "wait", "to": "greet"}],
    }


async def main() -> None:
    async with open_engine(Jobs(), store="memory:") as engine:
        first = await engine.flows.publish("greet", greeting("hello"))
        old = await engine.flows.start("greet")
        second = await engine.flows.publish("greet", greeting("good morning"))
        new = await engine.flows.start("greet")
        pinned = await engine.flows.start("greet", version=first.version)

        print("versions:", first.version, second.version)
        print("began before:", (await old.result())["greeting"]["text"])
        print("began after:", (await new.result())["greeting"]["text"])
        print("of version 1:", (await pinned.result())["greeting"]["text"])

        wrong = greeting("hi")
        wrong["nodes"]["greet"]["kind"] = "chioce"
        wrong["edges"].append({"from": "wait", "action": "late", "to": "nowhere"})
        try:
            await engine.flows.publish("greet", wrong)
        except Invalid as error:
            print(*(mistake.partition(":")[0] for mistake in error.details["errors"]), sep="\n")


if __name__ == "__main__":
    trio.run(main)

# Output:
# versions: 1 2
# began before: hello
# began after: good morning
# of version 1: hello
# nodes.greet.kind
# edges[1].to
