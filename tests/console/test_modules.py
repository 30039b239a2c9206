"""The modules of the console that only compute, in Node: the filter and the rows of the list, and rates."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.protocol.events import Event
from greenroom.protocol.records import RunRecord
from greenroom.protocol.run_filter import RunFilter
from greenroom.protocol.states import Status

from ..clients.javascript import MODULE, needs_node, run_node

pytestmark = needs_node

APP = MODULE.parent / "app"


def load(*names: str) -> str:
    """A program's beginning: everything that these modules export."""
    imports = [f"await import({(APP / name).as_uri()!r})" for name in names]
    return "".join(f"Object.assign(globalThis, {one});\n" for one in imports)


def run(number: int, **fields: Any) -> RunRecord:
    usual: dict[str, Any] = {
        "id": f"{number:032x}",
        "handle": "alice",
        "lane": "main",
        "job": "add",
        "kind": "start",
        "params": None,
        "status": Status.QUEUED,
        "reason": None,
        "created_at": float(number),
        "started_at": None,
        "ended_at": None,
        "updated_at": float(number),
    }
    return RunRecord(**{**usual, **fields})


def plain(*runs: RunRecord) -> Any:
    return [msgspec.to_builtins(one) for one in runs]


NAMES = st.sampled_from(["a", "b", "A b"])
RUNS = st.builds(
    lambda number, **fields: run(number, **fields),
    st.integers(0, 50),
    handle=NAMES,
    lane=NAMES,
    job=st.sampled_from(["a", "b", "flow"]),
    params=st.sampled_from([None, 5, {"flow": "a"}, {"flow": "b"}]),
    status=st.sampled_from(Status),
    tags=st.dictionaries(NAMES, NAMES, max_size=2),
    parent=st.none() | NAMES,
)
MAYBE = st.none() | NAMES
FILTERS = st.builds(
    RunFilter,
    handle=MAYBE,
    lane=MAYBE,
    job=MAYBE,
    flow=MAYBE,
    status=st.none() | st.frozensets(st.sampled_from(Status), min_size=1),
    tags=st.dictionaries(NAMES, NAMES, max_size=2),
    parent=MAYBE,
)


async def test_the_filter_of_the_list_selects_the_runs_that_the_engine_selects():
    cases: list[tuple[RunFilter, list[RunRecord]]] = []

    @settings(max_examples=200, deadline=None, database=None)
    @given(FILTERS, st.lists(RUNS, max_size=8))
    def collect(filter: RunFilter, runs: list[RunRecord]) -> None:
        cases.append((filter, runs))

    collect()
    queries = []
    for filter, _ in cases:
        pairs = [(name, getattr(filter, name)) for name in ("handle", "lane", "job", "flow", "parent")]
        pairs += [("status", str(status)) for status in filter.status or ()]
        pairs += [("tag", f"{name}={value}") for name, value in filter.tags.items()]
        queries.append([[name, value] for name, value in pairs if value is not None])
    program = (
        load("views/runs/filter.js")
        + """
        answer(argument.map(([query, runs]) => {
            const matches = matcher(filterOf(new URLSearchParams(query)));
            return runs.filter(matches).map(({ id }) => id);
        }));
        """
    )
    argument = [[query, plain(*runs)] for query, (_, runs) in zip(queries, cases, strict=True)]
    assert await run_node(program, argument) == [
        [one.id for one in runs if filter.matches(one)] for filter, runs in cases
    ]


async def test_the_filter_finds_a_text_anywhere_in_a_run_and_times_of_creation():
    runs = plain(
        run(1, error="ValueError: No Space"),
        run(2, tags={"user": "Space"}),
        run(3, params={"place": "in space"}),
        run(4, reason="error", created_at=100.0),
    )
    program = (
        load("views/runs/filter.js")
        + """
        const found = (query) => argument.filter(matcher(filterOf(new URLSearchParams(query)))).length;
        answer([
            found("text=space"),
            found("text=nothing"),
            found(`since=${new Date(50_000).toISOString()}`),
            found(`until=${new Date(50_000).toISOString()}`),
            found(""),
        ]);
        """
    )
    assert await run_node(program, runs) == [3, 0, 1, 3, 4]


async def test_a_filter_that_is_unknown_selects_no_run_and_says_why():
    program = (
        load("views/runs/filter.js")
        + """
        const queries = ["status=none&status=failed", "staus=failed", "since=never", "tag=lone", "tag==x"];
        answer(queries.map((query) => {
            const filter = filterOf(new URLSearchParams(query));
            return [filter.problems, argument.filter(matcher(filter)).length, endedOptions(filter)];
        }));
        """
    )
    assert await run_node(program, plain(run(1, status=Status.FAILED))) == [
        [["none is not a status"], 0, None],
        [["staus is not a filter"], 0, None],
        [["since is not a time: never"], 0, None],
        [["lone is not a tag with its value: write tag=name=value, such as tag=user=alice"], 0, None],
        [["=x is not a tag with its value: write tag=name=value, such as tag=user=alice"], 0, None],
    ]


async def test_two_values_of_one_tag_select_no_run_of_the_store():
    program = (
        load("views/runs/filter.js")
        + """
        const options = (query) => optionsOf(filterOf(new URLSearchParams(query)), CANCELLABLE);
        answer(["tag=a=1&tag=a=2", "status=failed", "tag=a=1&tag=a=1&status=queued"].map(options));
        """
    )
    assert await run_node(program) == [None, None, {"status": ["queued"], "tags": {"a": "1"}}]


async def test_the_client_knows_the_types_of_events():
    program = load("../greenroom.js") + "answer(EVENT_TYPES);"
    assert await run_node(program) == [one.__struct_config__.tag for one in get_args(Event)]


async def test_only_ended_runs_are_read_from_the_store():
    program = (
        load("views/runs/filter.js")
        + """
        const options = (query) => endedOptions(filterOf(new URLSearchParams(query)));
        answer([
            options("status=queued"),
            options("status=queued&status=failed&lane=x&tag=a%3Db"),
            options("").status.length,
        ]);
        """
    )
    assert await run_node(program) == [None, {"status": ["failed"], "lane": "x", "tags": {"a": "b"}}, 5]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=6)),
        st.tuples(st.just("gone"), st.lists(st.integers(0, 30), max_size=3)),
        st.tuples(st.just("older"), st.lists(st.integers(0, 30), max_size=3)),
    ),
    max_size=12,
)


async def test_the_rows_follow_every_change_in_the_order_of_creation():
    cases: list[Any] = []

    @settings(max_examples=200, deadline=None, database=None)
    @given(STEPS)
    def collect(steps: Any) -> None:
        cases.append(steps)

    collect()
    program = (
        load("views/runs/rows.js")
        + """
        const id = (number) => String(number).padStart(4, "0");
        const all = (rows) => Array.from({ length: rows.count }, (_, index) => rows.at(index));
        answer(argument.map((steps) => {
            const runs = new Map();
            const rows = new Rows((run) => run.ok);
            const seen = [];
            for (const [kind, what] of steps) {
                if (kind === "change") {
                    for (const [number, ok] of what) runs.set(id(number), { id: id(number), ok });
                }
                if (kind === "gone") for (const number of what) runs.delete(id(number));
                if (kind === "older") {
                    const older = what.map(id).filter((one) => !runs.has(one));
                    rows.add(older.map((one) => ({ id: one, ok: true })));
                } else {
                    const changed = kind === "change" ? what.map(([number]) => id(number)) : [];
                    rows.update(changed, runs);
                }
                const ids = all(rows);
                const same = ids.every((one, index) => rows.at(index) === one && rows.indexOf(one) === index);
                seen.push([ids, same && rows.count === ids.length && rows.indexOf("none") === -1]);
            }
            rows.rebuild(runs);
            return [seen, all(rows)];
        }));
        """
    )
    for steps, (seen, rebuilt) in zip(cases, await run_node(program, cases), strict=True):
        runs: dict[int, bool] = {}
        older: set[int] = set()
        for (kind, what), (ids, consistent) in zip(steps, seen, strict=True):
            if kind == "change":
                for number, ok in what:
                    runs[number] = ok
                older -= {number for number, _ in what if not runs[number]}
            elif kind == "gone":
                for number in what:
                    runs.pop(number, None)
            else:
                older |= {number for number in what if number not in runs}
            expected = {number for number, ok in runs.items() if ok} | {
                one for one in older if one not in runs
            }
            expected |= {one for one in older if runs.get(one)}
            assert ids == [f"{number:04}" for number in sorted(expected, reverse=True)]
            assert consistent
        assert rebuilt == (seen[-1][0] if seen else [])


async def test_rates_count_what_happens_in_each_second():
    program = (
        load("state/rates.js")
        + """
        const rates = new Rates();
        const change = (run, from, to, at) => ({ type: "run_state_changed", run, from, to, at });
        const [a, b] = [{ created_at: 90, placed_at: null }, { created_at: 90, placed_at: 99 }];
        const runs = new Map([["a", a], ["b", b]]);
        const times = { created_at: 95, placed_at: null, started_at: 95.5, ended_at: 96 };
        rates.restart([{ id: "z", status: "failed", ...times }]);
        rates.take(change("a", "queued", "running", 100.2), runs);
        rates.take(change("b", "queued", "running", 100.9), runs);
        rates.take(change("a", "suspended", "running", 101), runs);
        rates.take(change("a", "running", "failed", 101), runs);
        rates.take(change("b", "running", "succeeded", 101), runs);
        const series = rates.series(0);
        answer({ length: series.length, last: series.slice(-7), hour: rates.failures(200).count,
            later: rates.failures(3600 + 98).count });
        """
    )
    found = await run_node(program)
    nothing = {"started": 0, "ended": 0, "failed": 0, "waited": 0}
    assert (found["length"], found["hour"], found["later"]) == (120, 2, 1)
    assert found["last"][0] == {**nothing, "started": 1, "waited": 0.5}
    assert found["last"][1] == {**nothing, "ended": 1, "failed": 1}
    second = found["last"][5]
    assert (second["started"], second["ended"], round(second["waited"], 6)) == (2, 0, 10.2)
    assert found["last"][6] == {**nothing, "ended": 2, "failed": 1}


async def test_rates_say_from_when_on_they_are_known():
    program = (
        load("state/rates.js", "../greenroom.js")
        + """
        const rates = new Rates();
        const ended = (number) => ({ id: String(number), status: number % 2 ? "failed" : "succeeded",
            created_at: 0, placed_at: 0, started_at: 0, ended_at: 1000 + number / 10 });
        const state = (count) => Array.from({ length: count }, (_, index) => ended(index));
        const seen = () => [rates.failures(1110), rates.unknownUntil(1110), rates.series(1110).length];
        rates.restart(state(KEPT_ENDED_RUNS - 1));
        const all = seen();
        rates.restart(state(KEPT_ENDED_RUNS));
        const some = seen();
        const fail = (run, at) => rates.take({ type: "run_state_changed", run, to: "failed", at }, new Map());
        for (let number = 0; number < 10_000; number++) fail(`f${number}`, 1200 + number / 1000);
        const [later, many] = [rates.failures(4600), rates.failures(4805)];
        answer({ all, some, later, many, over: rates.unknownUntil(1200) });
        """
    )
    found = await run_node(program)
    assert found["all"] == [{"count": 499, "since": -2490, "complete": True}, None, 120]
    assert found["some"] == [{"count": 500, "since": 1000, "complete": False}, 1000, 111]
    assert found["later"] == {"count": 10_000, "since": 1099.9, "complete": False}
    assert found["many"]["count"] == 5_000
    assert found["many"]["complete"]
    assert found["over"] is None


async def test_the_list_of_handles_selects_by_text_and_status_in_alphabetical_order():
    program = (
        load("views/handles/names.js")
        + """
        const handles = { b: "Idle", Ab: "Failed", "ä": "Idle", a: "Running" };
        const names = new Names();
        const select = (text, ...statuses) => {
            const handle = (name) => ({ status: handles[name] });
            names.update(matching(Object.keys(handles), text, statuses, handle));
            return Array.from({ length: names.count }, (_, index) => names.at(index));
        };
        answer({
            all: select(""),
            text: select("B"),
            status: select("", "Idle", "Running"),
            both: select("b", "Idle"),
            rows: ["b", "a"].map(names.indexOf),
        });
    """
    )
    assert await run_node(program) == {
        "all": ["Ab", "a", "b", "\u00e4"],
        "text": ["Ab", "b"],
        "status": ["a", "b", "\u00e4"],
        "both": ["b"],
        "rows": [0, -1],
    }


async def test_a_blocked_event_loop_is_known_for_ten_minutes():
    program = (
        load("state/rates.js")
        + """
        const rates = new Rates();
        const log = (run, by, text, at) => rates.take({ type: "run_log", run, by, text, at }, new Map());
        log("a", "engine", "blocked the event loop for 2.0 s, at x.py:1", 100);
        log("a", "engine", "blocked the event loop for 3.0 s, at x.py:1", 110);
        log("b", "body", "blocked the event loop for 9.0 s, at x.py:1", 100);
        const found = (now) => rates.blockedLately(now).map(({ run, text }) => [run, text.slice(27, 32)]);
        const seen = [found(700), found(711)];
        const text = "blocked the event loop for 1.0 s";
        for (let run = 0; run < 50; run++) log(String(run), "engine", text, 800);
        answer([...seen, rates.blockedLately(800).length]);
        """
    )
    assert await run_node(program) == [[["a", "3.0 s"]], [], 20]


async def test_the_survey_finds_who_waits_what_blocks_and_which_bodies_have_no_slot():
    def queued(number: int, **fields: Any) -> RunRecord:
        return run(number, place=number, **fields)

    def running(number: int, **fields: Any) -> RunRecord:
        return run(number, status=Status.RUNNING, **fields)

    runs = [
        queued(1),
        queued(2, placed_at=0.5),
        queued(3, lane="images"),
        queued(4, lane="late", waiting_for="time"),  # it waits for its time, not for a slot
        run(5),  # it waits in its handle
        *(running(number, executor="e1") for number in range(10, 17)),
        running(20, lane="images", detached=True),  # it has no slot
        run(21, status=Status.CANCELLED, reason="abandoned"),
    ]
    program = (
        load("state/survey.js")
        + """
        const runs = new Map(argument.map((run) => [run.id, run]));
        const { detached, abandoned, waits, delayed, inHandles, executing } = survey(runs);
        const ids = (runs) => runs.map(({ id }) => parseInt(id, 16));
        answer({
            bodies: [ids(detached), ids(abandoned)],
            others: [delayed, inHandles],
            waits: [...waits].map(([lane, { run, since, queued, blockers }]) =>
                [lane, parseInt(run.id, 16), since, queued, ids(blockers)]),
            executing: [...executing].map(([executor, runs]) => [executor, ids(runs).length]),
        });
        """
    )
    assert await run_node(program, plain(*runs)) == {
        "bodies": [[20], [21]],
        "others": [1, 1],
        "waits": [["main", 2, 0.5, 2, [10, 11, 12, 13, 14]], ["images", 3, 3, 1, []]],
        "executing": [["e1", 7], [None, 1]],
    }


async def test_a_tail_keeps_the_latest_events_and_its_copy_does_not_change():
    program = (
        load("state/tail.js")
        + """
        const tail = new Tail(3);
        const all = (tail) => Array.from({ length: tail.count }, (_, row) => tail.at(row).item);
        const seen = () => all(tail).map((item) => item.seq ?? item.type);
        const states = [seen()];
        for (const seq of [1, 4, 5]) tail.add({ seq });
        states.push(seen());
        const copy = tail.copy();
        tail.add({ type: "gap", missed: null });
        for (const seq of [1, 2]) tail.add({ seq }); // a new engine begins again
        states.push(seen());
        const rows = [6, 5, 4, 3, 0, 7].map(tail.rowOf);
        answer({ states, rows, copied: [copy.count, copy.at(0).item.seq, copy.rowOf(1), copy.rowOf(4)] });
        """
    )
    assert await run_node(program) == {
        "states": [[], [5, 4, 1], [2, 1, "gap"]],
        "rows": [0, 1, 2, -1, -1, -1],
        "copied": [3, 5, 2, -1],
    }


async def test_a_folded_value_shows_its_beginning():
    found = await run_node(
        load("parts/brief.js") + "answer(argument.map((one) => brief(one, 40)));",
        [{"a": [1, {"b": None}], "c": "x"}, [], "text", {"long": "w" * 500}, list(range(1000))],
    )
    assert found[:3] == ['{a: [1, {b: null}], c: "x"}', "[]", '"text"']
    assert found[3] == '{long: "' + "w" * 32 + "…"
    assert found[4] == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1…"
    program = load("parts/brief.js") + "answer(brief(greenroom.parseExact(argument), 40));"
    assert await run_node(program, '{"a": [9007199254740993, 1.0]}') == "{a: [9007199254740993, 1.0]}"


async def test_times_in_an_address_are_the_same_everywhere():
    program = (
        'process.env.TZ = "America/Los_Angeles";\n'
        + load("views/runs/filter.js")
        + """
        answer({
            read: argument.map(seconds),
            written: [1795161600, 1795161630.25].map(written),
            local: [1795161600, 1795161630].map(local),
            again: seconds(local(1795161600)),
        });
        """
    )
    at = 1795161600.0
    texts = ["2026-11-20T08:00Z", "2026-11-20T09:00+01:00", "1795161600", "1795161600.5"]
    found = await run_node(program, [*texts, "2026-11-20T08:00", "no", "8640000000000", "-1e99", "9" * 20])
    assert found["read"] == [at, at, at, at + 0.5, at + 8 * 3600, None, None, None, None]
    assert found["written"] == ["2026-11-20T08:00Z", "2026-11-20T08:00:30.250Z"]
    assert found["local"] == ["2026-11-20T00:00", "2026-11-20T00:00:30"]
    assert found["again"] == at
