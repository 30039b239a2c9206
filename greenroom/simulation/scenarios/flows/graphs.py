"""Random small graphs: every kind of node, in each of its modes, with loops that end.

`random` can be any source of random numbers, also Hypothesis'. Edges lead forward, except for those of `turn`
nodes, which send the walk back a few times.
"""

from __future__ import annotations

from random import Random
from typing import Any

from .plan import FUNCTIONS, SERVICES

KEYS = ("a", "b", "a.x", "b.list", "items")
"""The paths in `shared` to which nodes write, and to which clients send signals."""

_ACTIONS = ("x", "y", "z", "default", "approved", "rejected")
_STRATEGIES = ("fail_fast", "collect_errors", "ignore_errors")
_DEEPEST = 2


def draw_graph(random: Random, others: tuple[str, ...] = (), depth: int = 0) -> dict[str, Any]:
    """A random graph. Its `flow_ref` nodes refer to some of the `others`."""
    names = [f"n{number}" for number in range(random.randint(1, 5 - depth))]
    nodes: dict[str, Any] = {}
    edges: list[dict[str, str]] = []
    for number, name in enumerate(names):
        node = draw_node(random, others, depth, loops=number > 0)
        nodes[name] = node
        if node.get("service") == "turn":
            edges.append({"from": name, "action": "again", "to": random.choice(names[: number + 1])})
        edges += _draw_edges(random, name, [*names[number + 1 :], ""])
    graph = {"start": names[0], "nodes": nodes, "edges": edges}
    rule = random.choice((None, None, "continue", "continue", "fail"))
    return graph if rule is None else graph | {"unhandled_errors": rule}


def draw_node(random: Random, others: tuple[str, ...], depth: int, *, loops: bool = False) -> dict[str, Any]:
    """A random node of any kind."""
    if loops and random.random() < 0.15:
        return {"kind": "executor", "service": "turn", "post": {"action_key": "go"}, **_draw_retries(random)}
    kinds = [
        "executor",
        "executor",
        "local",
        "choice",
        "parallel",
        "foreach",
        "timer",
        "wait_event",
        "approval",
    ]
    kinds += ["subflow", "subflow"] if depth < _DEEPEST else []
    kinds += ["flow_ref"] if others else []
    kind = random.choice(kinds)
    node: dict[str, Any] = {"kind": kind, "prep": _draw_prep(random), "post": _draw_post(random)}
    if random.random() < 0.3:
        node["on_error"] = random.choice(_ACTIONS)
    if random.random() < 0.15:
        node["on_timeout"] = random.choice(_ACTIONS)
    if random.random() < 0.2:
        node["default_action"] = random.choice(_ACTIONS)
    match kind:
        case "executor":
            node |= _draw_call(random)
        case "local":
            node["func"] = random.choice(FUNCTIONS)
        case "choice":
            node["choice_cases"] = [_draw_case(random) for _ in range(random.randint(0, 3))]
        case "parallel":
            node |= _draw_branches(random)
            names = FUNCTIONS if node["exec_type"] == "local" else SERVICES[:2]
            node["parallel_services"] = [random.choice(names) for _ in range(random.randint(1, 4))]
        case "foreach":
            node |= _draw_branches(random)
            local = node["exec_type"] == "local"
            node["func" if local else "service"] = random.choice(FUNCTIONS if local else SERVICES[:2])
            node["prep"] = {"input_key": random.choice(("items", "b.list", "$params.items", "$params.items"))}
        case "timer":
            node["params"] = {"delay_ms": random.choice((0, 700, 4000))}
        case "wait_event" | "approval":
            node |= _draw_wait(random, kind)
        case "subflow":
            node["subflow"] = draw_graph(random, others, depth + 1)
        case "flow_ref":
            node |= {"flow": random.choice(others), "version": random.choice((0, 0, 1))}
    return node


def _draw_edges(random: Random, name: str, ahead: list[str]) -> list[dict[str, str]]:
    actions = [action for action in (*_ACTIONS, "error") if random.random() < 0.35]
    if random.random() < 0.5 and "default" not in actions:
        actions.append("default")
    return [{"from": name, "action": action, "to": _draw_next(random, ahead)} for action in actions]


def _draw_next(random: Random, ahead: list[str]) -> str:
    return ahead[0] if random.random() < 0.6 else random.choice(ahead)


def _draw_prep(random: Random) -> dict[str, Any]:
    draw = random.random()
    if draw < 0.2:
        return {}
    if draw < 0.6:
        return {"input_key": random.choice((*KEYS, "$shared.a", "$params.items", "$params.p"))}
    sources = (*KEYS, "$params.p", 7, "word", ["one"])
    return {"input_map": {key: random.choice(sources) for key in random.sample(("a", "items", "k"), 2)}}


def _draw_post(random: Random) -> dict[str, Any]:
    post: dict[str, Any] = {}
    if random.random() < 0.7:
        post["output_key"] = random.choice(KEYS)
    if random.random() < 0.25:
        post["output_map"] = {random.choice(KEYS): random.choice(("n", "list", "in.it", "a"))}
    if random.random() < 0.15:
        post["action_static"] = random.choice(_ACTIONS)
    elif random.random() < 0.4:
        post["action_key"] = random.choice(("go", "go", "$shared.a.go", "a"))
    return post


def _draw_retries(random: Random) -> dict[str, Any]:
    """Random options for retries; the parameter `spare` is the number of attempts that can fail."""
    node: dict[str, Any] = {}
    retries = random.choice((0, 0, 1, 2))
    if retries:
        node |= {"max_retries": retries, "wait_ms": random.choice((0, 0, 300))}
    if random.random() < 0.3:
        node |= {"max_attempts": random.choice((2, 3)), "attempt_delay_ms": random.choice((0, 500))}
    if random.random() < 0.3:
        node["weighted_by_load"] = True
    return node | {"params": {"spare": retries}}


def _draw_call(random: Random) -> dict[str, Any]:
    exec_type = random.choice(("http", "http", "queue", "local"))
    if exec_type == "local":
        return {"exec_type": "local", "func": random.choice(FUNCTIONS)}
    node = {"exec_type": exec_type, "service": random.choice(SERVICES[:2])} | _draw_retries(random)
    return _limit(random, node)


def _draw_branches(random: Random) -> dict[str, Any]:
    node: dict[str, Any] = {
        "exec_type": random.choice(("http", "http", "queue", "local")),
        "parallel_mode": random.choice(("sequential", "concurrent")),
        "failure_strategy": random.choice(_STRATEGIES),
    }
    if random.random() < 0.4:
        node["max_parallel"] = random.randint(1, 2)
    if node["exec_type"] == "local":
        return node
    return _limit(random, node | _draw_retries(random))


def _limit(random: Random, node: dict[str, Any]) -> dict[str, Any]:
    if random.random() < 0.2:
        node["timeout_ms"] = 5000 if node["exec_type"] == "queue" else random.choice((1000, 5000))
        node["params"] = node["params"] | {"limited": True}
    return node


def _draw_wait(random: Random, kind: str) -> dict[str, Any]:
    name = "signal_key" if kind == "wait_event" else "approval_key"
    params: dict[str, Any] = {name: random.choice(("$shared.flag", "go", "a", "$shared.b.x"))}
    if kind == "wait_event" and random.random() < 0.3:
        params["timeout_ms"] = random.choice((500, 3000))
    node: dict[str, Any] = {"params": params}
    if random.random() < 0.2:
        node["timeout_ms"] = random.choice((500, 3000))
    return node


def _draw_case(random: Random) -> dict[str, Any]:
    exprs = (
        "exists $shared.a",
        "$shared.a.n gt 4",
        "not exists $shared.flag",
        'a.go eq "x" or b.go eq "y"',
        {"in": [random.randint(0, 9), "$params.items"]},
        {"and": [{"exists": "$shared.b"}, {"ne": ["$shared.b", None]}]},
        "$input gt 3",
    )
    return {"action": random.choice(_ACTIONS), "expr": random.choice(exprs)}
