"""A flow waits for a signal, for an approval, or until a timeout, without a slot and without a body.

A signal writes a value into what the nodes share. An approval opens an interrupt; an answer decides it, and
so does a signal under its key.
"""

import trio

from greenroom import Jobs, open_engine

DELIVERY = """
start: payment
nodes:
  payment:
    kind: wait_event
    params: {signal_key: paid, timeout_ms: 60000}
    on_timeout: unpaid
  release: {kind: approval, params: {approval_key: released}, prep: {input_map: {paid: paid}}}
  delivered: {kind: choice, prep: {input_map: {text: delivered}}, post: {output_key: outcome}}
  kept: {kind: choice, prep: {input_map: {text: kept back}}, post: {output_key: outcome}}
edges:
  - {from: payment, to: release}
  - {from: payment, action: unpaid, to: kept}
  - {from: release, action: approved, to: delivered}
  - {from: release, action: rejected, to: kept}
"""


async def main() -> None:
    async with open_engine(Jobs(), store="memory:", max_concurrent=1) as engine:
        await engine.flows.publish("delivery", DELIVERY)
        interrupts = engine.events(filter={"types": ["interrupt_opened"]})

        first = await engine.flows.start("delivery", handle="alice")
        await engine.signal(first.id, "paid", 30)
        interrupt = await anext(interrupts)
        print("asked:", interrupt.data["node"], interrupt.data["input"])
        run = await engine.get_run(first.id)
        print("the run:", run.status, "for", run.waiting_for)
        await engine.answer(interrupt.interrupt, {"approved": True})
        print("alice:", await first.result())

        second = await engine.flows.start("delivery", handle="bob")
        await engine.signal(second.id, "paid", 5)
        await engine.signal(second.id, "released", False)
        print("bob:", await second.result())

        third = await engine.flows.start("delivery", handle="carol")
        print("carol:", await third.result())  # a minute later


if __name__ == "__main__":
    trio.run(main)

# Output:
# asked: release {'paid': 30}
# the run: suspended for answer
# alice: {'paid': 30, 'released': {'approved': True}, 'outcome': {'text': 'delivered'}}
# bob: {'paid': 5, 'released': False, 'outcome': {'text': 'kept back'}}
# carol: {'outcome': {'text': 'kept back'}}
