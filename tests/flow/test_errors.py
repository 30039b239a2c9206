"""An unhandled error fails the node and the flow, unless the definition says `continue`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Jobs
from tests.support import open_engine

from .definitions import Definition, flow, goes_on
from .restarts import Lives
from .walking import Calls, Walked, ended, local, node, start, walk

pytestmark = pytest.mark.usefixtures("place")

README = Path(__file__).parents[2] / "README.md"

SHIP = local("echo", {"x": "shipped"}, "shipped")
SORRY = local("echo", {"x": "sorry"}, "sorry")
FAILING = flow("", a=local("fail", "$params.x"))

KINDS: dict[str, tuple[Definition, str]] = {
    "executor": (node("executor", service="nobody"), "no_worker"),
    "executor of the queue": (node("executor", service="slow", exec_type="queue", timeout_ms=100), "timeout"),
    "executor of a function": (node("executor", func="fail"), "service_error"),
    "local": (local("fail"), "service_error"),
    "local that takes too long": (local("hang", timeout_ms=100), "timeout"),
    "parallel": (node("parallel", exec_type="local", parallel_services=["echo", "fail"]), "branch_failed"),
    "parallel without services": (node("parallel"), "bad_params"),
    "foreach": (node("foreach", "$params.items", exec_type="local", func="fail"), "branch_failed"),
    "foreach of no array": (node("foreach", "$params.x", exec_type="local", func="echo"), "bad_input"),
    "subflow": (node("subflow", subflow=FAILING), "subflow_failed"),
    "flow_ref": (node("flow_ref", flow="failing"), "subflow_failed"),
    "flow_ref to nothing": (node("flow_ref", flow="nothing"), "unknown_flow"),
    "wait_event": (node("wait_event", params={"signal_key": "go", "timeout_ms": 100}), "timeout"),
    "approval": (node("approval", params={"approval_key": "go"}, timeout_ms=100), "timeout"),
}

each_kind = pytest.mark.parametrize("kind", KINDS)


async def walked(definition: Definition, jobs: Jobs | None = None) -> Walked:
    async with open_engine(jobs or Calls().jobs, allow_scripts=True) as engine:
        await engine.flows.publish("failing", FAILING)
        return await walk(engine, definition, {"x": 1, "items": [1, 2]})


@each_kind
async def test_a_plain_edge_does_not_handle_an_error(kind: str, autojump_clock: MockClock) -> None:
    failing, code = KINDS[kind]
    done = await walked(flow("charge ship", charge=failing, ship=SHIP))
    assert done.error.startswith(f'node "charge": {code}: ')
    assert done.run.result is None
    assert done.of("ship") == []


@each_kind
async def test_an_edge_for_an_action_of_success_does_not_handle_an_error_either(
    kind: str, autojump_clock: MockClock
) -> None:
    charge = {**KINDS[kind][0], "default_action": "next"}
    charge["post"] = {"action_static": "next"}
    done = await walked(flow("charge:next ship, charge ship", charge=charge, ship=SHIP))
    assert "charge" in done.error
    assert done.of("ship") == []


@each_kind
async def test_an_edge_of_the_action_error_handles_an_error(kind: str, autojump_clock: MockClock) -> None:
    edges = "charge ship, charge:error sorry"
    done = await walked(flow(edges, charge=KINDS[kind][0], ship=SHIP, sorry=SORRY))
    assert done.result == {"sorry": {"x": "sorry"}} | ({"out": []} if "out" in done.result else {})
    assert done.of("charge")[-1].action == "error"
    assert done.of("ship") == []


@each_kind
async def test_on_error_handles_an_error_and_takes_precedence_over_that_edge(
    kind: str, autojump_clock: MockClock
) -> None:
    charge = {**KINDS[kind][0], "on_error": "oops"}
    edges = "charge ship, charge:error ship, charge:oops sorry"
    done = await walked(flow(edges, charge=charge, ship=SHIP, sorry=SORRY))
    assert done.result == {"sorry": {"x": "sorry"}}
    assert done.of("charge")[-1].action == "oops"


@each_kind
async def test_a_definition_that_continues_takes_the_edge_of_a_success(
    kind: str, autojump_clock: MockClock
) -> None:
    definition = flow("charge ship", charge=KINDS[kind][0], ship=SHIP)
    done = await walked(goes_on(definition))
    assert done.result == {"shipped": {"x": "shipped"}}
    assert done.of("charge")[-1].action == "default"
    done = await walked(goes_on({**definition, "edges": []}))
    assert "charge" in done.error


@each_kind
async def test_a_definition_that_continues_still_takes_the_edge_of_the_action_error(
    kind: str, autojump_clock: MockClock
) -> None:
    edges = "charge ship, charge:error sorry"
    done = await walked(goes_on(flow(edges, charge=KINDS[kind][0], ship=SHIP, sorry=SORRY)))
    assert done.result == {"sorry": {"x": "sorry"}}


async def test_an_edge_of_the_action_error_may_end_the_flow(autojump_clock: MockClock) -> None:
    done = await walked(flow("a:error -", a=local("fail")))
    assert done.result == {}


async def test_a_success_with_the_action_error_takes_that_edge_too(autojump_clock: MockClock) -> None:
    done = await walked(flow("a:error sorry", a=local("echo", action="error"), sorry=SORRY))
    assert done.result == {"sorry": {"x": "sorry"}}


async def test_a_timeout_takes_on_timeout_or_on_error_or_the_edge_of_the_action_error(
    autojump_clock: MockClock,
) -> None:
    ends = {name: local("echo", {"x": 1}, name) for name in ("late", "oops", "wrong")}
    edges = "a:late late, a:oops oops, a:error wrong"
    for fields, end in (
        ({"on_timeout": "late", "on_error": "oops"}, "late"),
        ({"on_error": "oops"}, "oops"),
        ({}, "wrong"),
    ):
        done = await walked(flow(edges, a=local("hang", timeout_ms=100, **fields), **ends))
        assert list(done.result) == [end]
    done = await walked(flow(edges, a=local("fail", on_timeout="late"), **ends))
    assert list(done.result) == ["wrong"]


async def test_an_output_that_cannot_be_stored_is_an_error_like_others(autojump_clock: MockClock) -> None:
    nodes = {"first": local("echo", "$params.x", "a"), "t": node("timer", params={"delay_ms": 0}, out="a.b")}
    done = await walked(flow("first t, t ship", **nodes, ship=SHIP))
    assert done.error.startswith('node "t": bad_output: ')
    done = await walked(flow("first t, t:error ship", **nodes, ship=SHIP))
    assert done.result == {"a": 1, "shipped": {"x": "shipped"}}


async def test_strategies_that_tolerate_failed_branches_continue(autojump_clock: MockClock) -> None:
    each = node("foreach", "$params.items", "out", exec_type="local", func="fail")
    for strategy, out in (("ignore_errors", []), ("collect_errors", [{"error": None}] * 2)):
        done = await walked(flow("a ship", a={**each, "failure_strategy": strategy}, ship=SHIP))
        found = [{"error": None} for _ in done.result["out"]]
        assert (found, "shipped" in done.result) == (out, True)


# Graphs within graphs.


def sub(inner: Definition, **fields: Any) -> Definition:
    return node("subflow", out="out", subflow=inner, **fields)


INNER = flow("a b", a=local("fail"), b=local("echo", {"x": 1}, "b"))


async def test_a_failure_in_a_subflow_is_handled_there_or_outside_or_fails_the_flow(
    autojump_clock: MockClock,
) -> None:
    done = await walked(flow("s ship", s=sub(INNER), ship=SHIP))
    assert done.error == 'node "s": subflow_failed: node "s/a": service_error: ValueError: no None'
    assert [row.node for row in done.rows] == ["s/a", "s"]
    done = await walked(flow("s ship, s:error sorry", s=sub(INNER), ship=SHIP, sorry=SORRY))
    assert done.result == {"sorry": {"x": "sorry"}}
    inner = flow("a:error b", a=local("fail"), b=local("echo", {"x": 1}, "b"))
    done = await walked(flow("s ship", s=sub(inner), ship=SHIP))
    assert done.result == {"out": {"b": {"x": 1}}, "shipped": {"x": "shipped"}}


async def test_an_embedded_graph_inherits_the_rule_for_errors_unless_it_sets_its_own(
    autojump_clock: MockClock,
) -> None:
    done = await walked(goes_on(flow("", s=sub(sub_of(INNER)))))
    assert done.result == {"out": {"out": {"b": {"x": 1}}}}
    done = await walked(flow("", s=sub(goes_on(INNER))))
    assert done.result == {"out": {"b": {"x": 1}}}
    done = await walked(goes_on(flow("s ship", s=sub({**INNER, "unhandled_errors": "fail"}), ship=SHIP)))
    assert done.result == {"shipped": {"x": "shipped"}}
    assert done.of("s/b") == []


def sub_of(inner: Definition) -> Definition:
    return flow("", s=sub(inner))


async def test_another_flow_follows_its_own_rule_for_errors(autojump_clock: MockClock) -> None:
    ref = node("flow_ref", flow="other", out="out")
    async with open_engine(Calls().jobs) as engine:
        await engine.flows.publish("other", INNER)
        done = await walk(engine, goes_on(flow("r ship", r=ref, ship=SHIP)))
        assert done.of("r/b") == []
        assert done.result == {"shipped": {"x": "shipped"}}
        await engine.flows.publish("other", goes_on(INNER))
        done = await walk(engine, flow("r ship", r=ref, ship=SHIP))
        assert done.result == {"out": {"b": {"x": 1}}, "shipped": {"x": "shipped"}}


async def test_a_flow_fails_after_a_crash_too(autojump_clock: MockClock) -> None:
    lives = Lives(Calls().jobs)
    wait = node("timer", params={"delay_ms": 1000})
    async with lives.crash() as engine:
        ticket = await start(engine, flow("t a, a ship", t=wait, a=local("fail"), ship=SHIP))
        await trio.sleep(0.5)
    async with lives.clean() as engine:
        done = await ended(engine, ticket.id)
        assert done.error.startswith('node "a": service_error')
        assert done.story == ["t ok default", "a error default"]


async def test_a_script_that_fails_fails_the_flow() -> None:
    failing = node("executor", exec_type="local_script", script=["greenroom-no-such-program"])
    done = await walked(flow("a ship", a=failing, ship=SHIP))
    assert done.error.startswith('node "a": service_error: ')


async def test_the_flow_of_the_readme_fails_without_a_worker(autojump_clock: MockClock) -> None:
    [definition] = re.findall(r"```yaml\n(start:.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    async with open_engine(Calls().jobs) as engine:
        await engine.flows.publish("order", definition)
        done = await ended(engine, await engine.flows.start("order", params={"prices": [60, 80]}))
        assert done.error.startswith('node "total": no_worker: ')
        assert done.story == ["total error default"]


# Definitions.


@pytest.mark.parametrize("value", ["ignore", True, 1, {}])
async def test_the_field_for_unhandled_errors_is_checked(value: Any, autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        found = await engine.flows.check({**INNER, "unhandled_errors": value})
        [mistake] = found.errors
        assert mistake.startswith("unhandled_errors: ")


async def warnings(definition: Definition) -> list[str]:
    async with open_engine(Calls().jobs) as engine:
        found = await engine.flows.check(definition)
        assert found.errors == []
        return found.warnings


async def test_the_check_warns_if_an_error_would_be_ignored(autojump_clock: MockClock) -> None:
    charge = node("executor", service="charge")
    definition = flow("charge ship", charge=charge, ship=node("executor", service="ship"))
    assert await warnings(definition) == []
    [warning] = await warnings(goes_on(definition))
    assert warning == (
        'nodes.charge: an error is ignored and leads to "ship", as a success does (unhandled_errors is '
        "'continue'): add on_error, or an edge for the action 'error'"
    )
    handled = flow("charge ship, charge:error -", **definition["nodes"])
    assert await warnings(goes_on(handled)) == []
    [warning] = await warnings(goes_on(flow("charge -", charge=charge)))
    assert "leads to the end of the flow" in warning
    [warning] = await warnings(
        goes_on(
            flow(
                "charge:x ship",
                **{**definition["nodes"], "charge": charge | {"post": {"action_static": "x"}}},
            )
        )
    )
    assert 'leads to "ship"' in warning


async def test_the_check_warns_about_ignored_errors_in_embedded_graphs(autojump_clock: MockClock) -> None:
    [warning] = await warnings(goes_on(flow("", s=sub(INNER))))
    assert warning.startswith("nodes.s.subflow.nodes.a: an error is ignored and leads")
    assert await warnings(goes_on(flow("", s=sub({**INNER, "unhandled_errors": "fail"})))) == []


async def test_the_check_warns_about_an_action_for_errors_without_an_edge(autojump_clock: MockClock) -> None:
    found = await warnings(flow("a:sorry b, a:c b", a=local("fail", on_error="sory"), b=SHIP))
    warning = found[0]
    assert warning == 'nodes.a.on_error: no edge from "a" has the action "sory": the flow fails'
