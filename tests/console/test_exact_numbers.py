"""Numbers that JavaScript cannot hold, in the console: shown exactly, and changed only by who edits them."""

from __future__ import annotations

import json

from ..clients.browser import needs_browser

pytestmark = needs_browser

LARGE = 2**53 + 1


async def test_an_edited_draft_keeps_the_numbers_that_nobody_touched(home):
    await home.engine.set_params("alice", {"order": LARGE, "note": "a"})
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.until(f"document.querySelector('#draft')?.value.includes('{LARGE}')")
    await home.tab.fill("#draft", json.dumps({"order": LARGE, "note": "b", "ratio": 1.0}))
    await home.tab.click("Save draft")
    await home.tab.until("document.querySelector('.draft .actions button').disabled")
    params = (await home.engine.snapshot()).handles["alice"].params
    assert json.dumps(params) == json.dumps({"order": LARGE, "note": "b", "ratio": 1.0})


async def test_a_schedule_keeps_its_parameters_when_its_times_change(home):
    await home.engine.schedules.put("nightly", job="add", cron="0 3 * * *", params={"tenant": LARGE})
    await home.tab.open(f"{home.url}/schedules/nightly")
    await home.tab.until_text(str(LARGE))
    await home.tab.run("document.querySelector('details.card').open = true")
    await home.tab.fill("[name=cron]", "0 4 * * *")
    await home.tab.click("Save")
    await home.tab.until_text("the schedule is saved")
    schedule = await home.engine.schedules.get("nightly")
    assert (schedule.cron, schedule.params) == ("0 4 * * *", {"tenant": LARGE})


async def test_a_flow_that_is_published_unchanged_is_the_same(home):
    params = {"delay_ms": 1, "account": LARGE, "factor": 1.0, "most": 1e20}
    definition = {"start": "a", "nodes": {"a": {"kind": "timer", "params": params}}, "edges": []}
    await home.engine.flows.publish("big", definition)
    await home.tab.open(f"{home.url}/flows/big")
    await home.tab.until("document.querySelector('.frame .box')")
    node = "document.querySelector('[data-path=a]')"
    await home.tab.run(f"{node}.dispatchEvent(new Event('click', {{ bubbles: true }}))")
    await home.tab.until("document.querySelector('.json-inside details')")
    await home.tab.run("document.querySelector('.json-inside details').open = true")
    await home.tab.until_text(str(LARGE), ".json")
    assert "1.0" in await home.tab.text(".json")
    await home.tab.open(f"{home.url}/flows/big?edit=1")
    await home.tab.until_text("No errors.")
    await home.tab.click("Publish")
    await home.tab.until_text("version 2 is published")
    flows = home.engine.flows
    first, second = [(await flows.version(row.id)).definition for row in await flows.versions("big")]
    assert first == second


async def test_answers_and_messages_are_sent_as_they_are_typed(home):
    asked = await home.engine.submit("ask", handle="alice")
    await home.tab.open(f"{home.url}/interrupts")
    await home.tab.until("document.querySelector('.interrupt details.other')")
    await home.tab.run("document.querySelector('details.other').open = true")
    await home.tab.fill(".other textarea", f'{{"account": {LARGE}}}')
    await home.tab.click("Send", ".interrupt")
    assert await asked.result() == {"account": LARGE}
    waits = await home.engine.submit("wait", handle="bob")
    await home.tab.open(f"{home.url}/runs/{waits.id}")
    await home.tab.fill("[name=message]", str(LARGE))
    await home.tab.click("Send")
    assert await waits.result() == LARGE
    await home.tab.until_text(str(LARGE), ".json-number")


async def test_a_flow_is_started_with_the_number_that_is_typed(home):
    nodes = {"a": {"kind": "timer", "params": {"delay_ms": 1, "note": "$params.order"}}}
    await home.engine.flows.publish("order", {"start": "a", "nodes": nodes, "edges": []})
    await home.tab.open(f"{home.url}/flows/order")
    await home.tab.fill("[name='parameter 0']", str(LARGE))
    await home.tab.click("Start version 1")
    await home.tab.until("location.pathname.startsWith('/runs/')")
    (run,) = await home.engine.list_runs(job="flow")
    assert run.params["params"] == {"order": LARGE}
