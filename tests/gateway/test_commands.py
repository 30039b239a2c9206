"""Every command, over WebSocket and over HTTP: the effects and the replies are the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec
import pytest
import trio

from greenroom.gateway.commands.table import TABLE
from tests.support import Bodies, until

from .support import House, Refused, Talk, house


class Skin(Protocol):
    """A transport for commands."""

    async def __call__(self, type: str, **fields: Any) -> dict[str, Any]: ...


class OverSocket:
    """Commands over WebSocket, with or without MessagePack."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    async def __call__(self, type: str, **fields: Any) -> dict[str, Any]:
        return await self._talk.call(type, **fields)


class OverHttp:
    """Commands over HTTP; a body that is one field of the reply is put into that field."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, type: str, **fields: Any) -> dict[str, Any]:
        [entry] = [one for one in TABLE if one.wire.__struct_config__.tag == type]
        assert entry.http is not None
        path = entry.http.path
        for name in [name for name in fields if "{" + name + "}" in path]:
            path = path.replace("{" + name + "}", fields.pop(name).replace("/", "%2F"))
        if entry.http.method == "GET":
            query = "&".join(f"{name}={value}" for name, value in fields.items())
            answer = await self._house.http("GET", f"{path}?{query}")
        else:
            answer = await self._house.http(entry.http.method, path, fields)
        if answer.status >= 400:
            raise Refused(answer.json)
        return answer.json if entry.http.body is None else {entry.http.body: answer.json}


@asynccontextmanager
async def skin_of(kind: str, home: House) -> AsyncIterator[Skin]:
    if kind == "http":
        yield OverHttp(home)
        return
    async with home.socket(f"greenroom.v1.{kind}") as talk:
        yield OverSocket(talk)


@pytest.fixture(params=["json", "msgpack", "http"])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[tuple[House, Skin]]:
    bodies = Bodies()

    @bodies.jobs.job("ask")
    async def ask(run: Any, params: dict[str, Any]) -> Any:
        return await run.interrupt({"may I": True}, timeout=100)

    @bodies.jobs.job("listen")
    async def listen(run: Any, params: dict[str, Any]) -> Any:
        return await run.next_message()

    async with house(bodies) as home, skin_of(request.param, home) as skin:
        yield home, skin


async def test_submit_starts_a_run_and_get_run_shows_it(both):
    _, command = both
    said = await command("submit", job="wait", handle="alice", params={"n": 1})
    assert said["joined"] is False
    run = (await command("get_run", run_id=said["run_id"]))["run"]
    assert (run["handle"], run["lane"], run["params"]) == ("alice", "main", {"n": 1})


async def test_submit_accepts_all_options_of_the_engine(both):
    home, command = both
    said = await command(
        "submit",
        job="wait",
        handle="alice",
        params={},
        kind="continue",
        lane="slow",
        on_conflict="queue",
        request_id="one",
        queue_timeout=5,
        run_timeout="none",
        deadline=100.5,
        warn_after=3,
    )
    again = await command(
        "submit", job="wait", handle="alice", params={}, kind="continue", lane="slow", request_id="one"
    )
    assert (again["run_id"], again["joined"]) == (said["run_id"], True)
    run = await home.engine.get_run(said["run_id"])
    assert (run.kind, run.lane) == ("continue", "slow")


async def test_a_conflict_names_the_active_run(both):
    _, command = both
    said = await command("submit", job="wait", handle="alice", params={})
    with pytest.raises(Refused) as refused:
        await command("submit", job="wait", handle="alice", params={})
    assert refused.value.code == "conflict"
    assert refused.value.details["active_run"] == said["run_id"]


async def test_cancel_ends_a_run(both):
    home, command = both
    await home.engine.set_max_concurrent(0)
    said = await command("submit", job="wait", handle="alice", params={})
    assert (await command("cancel", run_id=said["run_id"], files="delete"))["run"]["status"] == "cancelled"
    with pytest.raises(Refused) as refused:
        await command("cancel", run_id=said["run_id"])
    assert refused.value.code == "conflict"
    assert refused.value.details["run"]["status"] == "cancelled"


async def test_inject_reaches_the_body(both):
    home, command = both
    ticket = await home.engine.submit("listen", handle="alice", params={})
    await until(home.engine, lambda now: now.runs[ticket.id].interactive)
    assert (await command("inject", run_or_handle="alice", message={"hello": [1]}))["outcome"] == "accepted"
    assert await ticket.result() == {"hello": [1]}


async def test_inject_without_a_run_is_refused(both):
    _, command = both
    with pytest.raises(Refused) as refused:
        await command("inject", run_or_handle="nobody", message=None)
    assert refused.value.code == "no_active_run"


async def test_answer_resolves_an_interrupt(both):
    home, command = both
    ticket = await home.engine.submit("ask", handle="alice", params={})
    asked = await until(home.engine, lambda now: now.interrupts)
    [interrupt] = asked.interrupts
    assert (await command("answer", interrupt_id=interrupt, data={"approved": True}))["outcome"] == "resolved"
    assert await ticket.result() == {"approved": True}
    assert (await command("answer", interrupt_id=interrupt, data=1))["outcome"] == "already_resolved"
    assert (await command("answer", interrupt_id="x.1", data=1))["outcome"] == "not_found"


async def test_a_handle_can_replace_the_id_of_its_active_run(both):
    home, command = both
    ticket = await home.engine.submit("ask", handle="team/alice", params={})
    [interrupt] = (await until(home.engine, lambda now: now.interrupts)).interrupts.values()
    assert (await command("get_run", run_id="team/alice"))["run"]["id"] == ticket.id
    assert (await command("history", run_id="team/alice"))["events"][0]["run"] == ticket.id
    said = await command("answer", interrupt_id="team/alice", data="no", key="another")
    assert said["outcome"] == "not_found"
    said = await command("answer", interrupt_id="team/alice", data="yes", key=interrupt.key)
    assert said["outcome"] == "resolved"
    assert await ticket.result() == "yes"
    for type, fields in (
        ("get_run", {}),
        ("history", {}),
        ("cancel", {}),
        ("signal", {"key": "k", "value": 1}),
    ):
        with pytest.raises(Refused) as refused:
            await command(type, run_id="team/alice", **fields)
        assert (refused.value.code, refused.value.details) == ("no_active_run", {})
    assert (await command("answer", interrupt_id="team/alice", data=1))["outcome"] == "not_found"


async def test_cancel_takes_a_handle(both):
    home, command = both
    ticket = await home.engine.submit("wait", handle="alice", params={})
    assert (await command("cancel", run_id="alice"))["run"]["id"] == ticket.id


async def test_list_runs_filters_and_pages(both):
    home, command = both
    runs = [await home.engine.submit("wait", handle=f"h{n}", params={}) for n in range(5)]
    listed = (await command("list_runs", limit=2))["runs"]
    assert [run["id"] for run in listed] == [runs[4].id, runs[3].id]
    further = (await command("list_runs", limit=2, before=listed[-1]["id"]))["runs"]
    assert [run["id"] for run in further] == [runs[2].id, runs[1].id]
    assert [run["id"] for run in (await command("list_runs", handle="h0"))["runs"]] == [runs[0].id]
    assert (await command("list_runs", status="failed"))["runs"] == []


async def test_history_returns_the_events_of_a_run(both):
    home, command = both
    ticket = await home.engine.submit("wait", handle="alice", params={})
    home.bodies.end(ticket)
    await ticket.result()
    events = (await command("history", run_id=ticket.id))["events"]
    assert [event["to"] for event in events] == ["queued", "running", "succeeded"]


async def test_a_long_history_has_pages(both, monkeypatch):
    home, command = both
    ticket = await home.engine.submit("wait", handle="alice", params={}, on_conflict="queue")
    for number in range(150):
        await home.engine.inject(ticket.id, {"number": number, "filled": "x" * 100})
    home.bodies.end(ticket)
    await ticket.result()
    events = msgspec.to_builtins(await home.engine.history(ticket.id))
    assert len(events) == 153

    async def pages(**given) -> list[int]:
        found, lengths, following = [], [], {}
        while True:
            answer = await command("history", run_id=ticket.id, **given, **following)
            found += answer["events"]
            lengths.append(len(answer["events"]))
            if "next" not in answer:
                assert found == events
                return lengths
            assert answer["next"] == found[-1]["seq"]
            following = {"after": answer["next"]}

    assert await pages() == [153]
    assert await pages(limit=60) == [60, 60, 33]
    assert await pages(limit=51) == [51, 51, 51]
    monkeypatch.setattr("greenroom.actors.engine.reads._PAGE_BYTES", 10_000)
    assert await pages() == [100, 53]  # a portion is read as a whole
    for wrong in ({"limit": 1001}, {"limit": 0}, {"after": -1}):
        with pytest.raises(Refused) as refused:
            await command("history", run_id=ticket.id, **wrong)
        assert refused.value.code == "invalid"


async def test_a_long_history_is_read_from_its_end(both, monkeypatch):
    home, command = both
    ticket = await home.engine.submit("wait", handle="alice", params={}, on_conflict="queue")
    for number in range(150):
        await home.engine.inject(ticket.id, {"number": number, "filled": "x" * 100})
    home.bodies.end(ticket)
    await ticket.result()
    events = msgspec.to_builtins(await home.engine.history(ticket.id))

    async def pages(expected, **given) -> list[int]:
        found, lengths, following = [], [], {"before": events[-1]["seq"] + 1}
        while True:
            answer = await command("history", run_id=ticket.id, **given, **following)
            found = answer["events"] + found
            lengths.append(len(answer["events"]))
            if "next" not in answer:
                assert found == expected
                return lengths
            assert answer["next"] == found[0]["seq"]
            following = {"before": answer["next"]}

    assert await pages(events) == [153]
    assert await pages(events, limit=60) == [60, 60, 33]
    assert await pages(events, limit=51) == [51, 51, 51]
    assert await pages(events[100:], limit=30, after=events[99]["seq"]) == [30, 23]
    monkeypatch.setattr("greenroom.actors.engine.reads._PAGE_BYTES", 10_000)
    assert await pages(events) == [100, 53]  # a portion is read as a whole
    assert (await command("history", run_id=ticket.id, before=events[0]["seq"]))["events"] == []
    with pytest.raises(Refused) as refused:
        await command("history", run_id=ticket.id, before=-1)
    assert refused.value.code == "invalid"


async def test_snapshot_is_the_engines(both):
    home, command = both
    await home.engine.submit("wait", handle="alice", params={})
    await until(home.engine, lambda now: now.engine.executing == 1)
    whole = await home.engine.snapshot()
    assert (await command("snapshot"))["snapshot"] == msgspec.json.decode(msgspec.json.encode(whole))


async def test_set_params_sets_the_draft(both):
    home, command = both
    await command("set_params", handle="a/b", params={"url": "x"})
    assert (await home.engine.snapshot()).handles["a/b"].params == {"url": "x"}
    await command("set_params", handle="a/b", params=None)
    assert "a/b" not in (await home.engine.snapshot()).handles


async def test_a_locked_draft_is_refused(both):
    home, command = both
    await home.engine.submit("wait", handle="alice", params={})
    with pytest.raises(Refused) as refused:
        await command("set_params", handle="alice", params={})
    assert refused.value.code == "handle_locked"


async def test_limits_are_set(both):
    home, command = both
    await command("set_concurrency", lane="slow", limit=4)
    await command("set_max_concurrent", limit=7)
    now = await home.engine.snapshot()
    assert (now.lanes["slow"].limit, now.engine.max_concurrent) == (4, 7)
    await command("set_concurrency", lane="slow", limit=None)
    assert (await home.engine.snapshot()).lanes["slow"].limit is None


async def test_clears_count(both):
    home, command = both
    await home.engine.set_max_concurrent(0)
    for _ in range(2):
        await home.engine.submit("wait", handle="alice", params={}, on_conflict="queue")
    assert (await command("clear_handle", handle="alice"))["count"] == 1
    assert (await command("clear_lane", lane="main"))["count"] == 1


async def test_release_handle_returns_whether_there_was_a_body(both):
    _, command = both
    assert (await command("release_handle", handle="alice"))["released"] is False


async def test_reset_drain_and_resume(both):
    home, command = both
    await command("drain")
    with pytest.raises(Refused) as refused:
        await command("submit", job="wait", handle="alice", params={})
    assert refused.value.code == "draining"
    await command("resume")
    await command("submit", job="wait", handle="alice", params={})
    await command("reset_lanes")
    assert (await home.engine.snapshot()).lanes["main"].generation == 1


async def test_unknown_runs_are_not_found(both):
    _, command = both
    for type in ("get_run", "history", "cancel"):
        with pytest.raises(Refused) as refused:
            await command(type, run_id="nothing")
        assert refused.value.code == "not_found"


async def test_an_invalid_field_is_named(both):
    _, command = both
    with pytest.raises(Refused) as refused:
        await command("set_max_concurrent", n=-1)
    assert refused.value.code == "invalid"
    assert refused.value.message == "n: expected integer >= 0"
    with pytest.raises(Refused) as refused:
        await command("drain", now=True)
    assert refused.value.message == "message: object contains unknown field now"
    with pytest.raises(Refused) as refused:
        await command("submit", job="quick", handle="a", lanes="side")
    assert refused.value.message == 'message: object contains unknown field lanes: did you mean "lane"?'


async def test_an_unknown_command_is_named_with_the_most_similar_one():
    async with house() as home, home.socket() as talk:
        with pytest.raises(Refused) as refused:
            await talk.call("list_run")
        assert refused.value.message == 'unknown command "list_run": did you mean "list_runs"?'


async def test_every_reply_contains_the_engines_seq(both):
    home, command = both
    said = await command("set_max_concurrent", n=5)
    assert said["seq"] == home.engine.stream.last_seq == 1


async def test_limits_are_also_taken_under_their_old_name(both):
    home, command = both
    await command("set_concurrency", lane="slow", n=4)
    await command("set_max_concurrent", n=7)
    snapshot = await home.engine.snapshot()
    assert (snapshot.lanes["slow"].limit, snapshot.engine.max_concurrent) == (4, 7)
    await command("set_concurrency", lane="slow", n=5, limit=2)
    await command("set_max_concurrent", limit=3, n=7)
    snapshot = await home.engine.snapshot()
    assert (snapshot.lanes["slow"].limit, snapshot.engine.max_concurrent) == (2, 3)
    for type, fields in (("set_max_concurrent", {}), ("set_concurrency", {"lane": "slow"})):
        with pytest.raises(Refused, match="message: object missing required field limit"):
            await command(type, **fields)
    for name in ("n", "limit"):
        with pytest.raises(Refused, match=f"{name} must be an integer between 0 and"):
            await command("set_max_concurrent", **{name: 2**40})


async def test_the_error_for_an_unknown_field_of_a_query_names_the_query():
    async with house() as home:
        for path, name, hint in (
            ("/api/runs", "lanes", ': did you mean "lane"?'),
            ("/api/state", "job", ""),
            ("/api/runs", "id", ""),
        ):
            answer = await home.http("GET", f"{path}?{name}=x")
            assert answer.status == 400
            assert answer.json["message"] == f"query: object contains unknown field {name}{hint}"


# `wait`, which only WebSocket has.


async def test_wait_answers_when_the_run_has_ended():
    async with house() as home, home.socket() as talk:
        ticket = await home.engine.submit("wait", handle="alice", params={})
        waiting = await talk.post("wait", run_id=ticket.id, timeout=1000)
        await talk.call("snapshot")
        home.bodies.end(ticket)
        said = await talk.reply(waiting)
        assert (said["ended"], said["run"]["status"]) == (True, "succeeded")
        assert (await talk.call("wait", run_id=ticket.id, timeout="none"))["ended"] is True


async def test_wait_takes_a_handle_and_keeps_to_the_run_that_was_active():
    async with house() as home, home.socket() as talk:
        ticket = await home.engine.submit("wait", handle="alice", params={})
        queued = await home.engine.submit("wait", handle="alice", params={}, on_conflict="queue")
        waiting = await talk.post("wait", run_id="alice", timeout=1000)
        await talk.call("snapshot")
        home.bodies.end(ticket)
        said = await talk.reply(waiting)
        assert (said["run"]["id"], said["run"]["status"]) == (ticket.id, "succeeded")
        assert (await talk.call("wait", run_id="alice", timeout=0))["run"]["id"] == queued.id


async def test_wait_ends_after_its_timeout(autojump_clock):
    async with house(listen=False) as home:
        talk = await home.memory_socket()
        ticket = await home.engine.submit("wait", handle="alice", params={})
        begun = trio.current_time()
        said = await talk.call("wait", run_id=ticket.id)
        assert (said["ended"], said["run"]["status"]) == (False, "running")
        assert trio.current_time() - begun == 15
        assert (await talk.call("wait", run_id=ticket.id, timeout=0))["ended"] is False
