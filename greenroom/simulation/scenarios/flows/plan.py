"""The planned responses of the scenario's services, and the planned trouble of their calls.

A response depends only on the seed, the service, the input, and the calling node, visit and branch: not on
the worker, the time or the number of attempts. So the result of a flow is known in advance. Trouble is either
temporary, and then it ends before a node's retries do; or it is permanent, and then it is the outcome of the
call.
"""

from __future__ import annotations

import math
from collections import Counter
from hashlib import blake2b
from random import Random
from typing import Any

import attrs
import msgspec

from .calls import Call, Trouble

SERVICES = ("one", "two", "turn")
"""`turn` sends a walk around a loop a few times; it never fails."""

FUNCTIONS = ("here", "there")

MOST_TURNS = 3


@attrs.frozen
class Ok:
    """The call succeeded."""

    value: Any


@attrs.frozen
class Failed:
    """The call failed with this error code."""

    code: str


Outcome = Ok | Failed

_ALWAYS: dict[Trouble, str] = {
    "status": "bad_status",
    "garbage": "bad_json",
    "shape": "bad_answer",
    "reset": "reset",
}
"""The kinds of permanent trouble for HTTP calls, and their error codes."""

UNLUCKY = frozenset({*_ALWAYS.values(), "unreachable", "timeout"})
"""The error codes of an attempt with trouble, while at least one worker is available."""

_FOR_A_WHILE: tuple[Trouble, ...] = (
    "unreachable",
    "reset",
    "lost",
    "status",
    "garbage",
    "shape",
    "never",
    "late",
)
_PULLED: tuple[Trouble, ...] = ("never", "late", "status", "never")


class ServiceFailed(Exception):
    """A failure of a service, as planned."""


@attrs.define
class Plan:
    """See the module's docstring. In a `wild` plan, temporary trouble can last longer than the retries."""

    seed: str
    wild: bool = False
    met: Counter[str] = attrs.Factory(Counter)
    """By idempotency key: how often a call has had trouble."""
    _slow: set[str] = attrs.Factory(set)

    def outcome(self, service: str, asks: str, input: Any, params: dict[str, Any], kind: str) -> Outcome:
        """The final outcome of a call; `asks` is `node:visit:branch`, `kind` is the node's `exec_type`."""
        trouble = self._always(service, asks, params, kind)
        if trouble == "never":
            return Failed("timeout")
        if trouble is not None:
            return Failed(_ALWAYS[trouble])
        return self._answer(service, asks if kind != "local" else "", input, params)

    async def serve(self, call: Call) -> Any:
        """Execute a call as its service: return the planned response, or raise `ServiceFailed`."""
        asks = call.key.partition(":")[2]
        answer = self._answer(call.service, asks, call.input, call.params)
        if isinstance(answer, Failed):
            raise ServiceFailed("as planned")
        return answer.value

    def trouble(self, call: Call, kind: str, *, may_die: bool) -> Trouble | None:
        """The trouble of a call at a worker, if any."""
        asks = call.key.partition(":")[2]
        always = self._always(call.service, asks, call.params, kind)
        if always is not None:
            return always
        random = self._random("trouble", call.service, call.key, self.met[call.key])
        most = (
            math.inf if self.wild else self._random("most", call.key).randint(0, call.params.get("spare", 0))
        )
        if self.met[call.key] >= most or (self.wild and random.random() < 0.6):
            return self._harmless(random, call, kind)
        self.met[call.key] += 1
        if may_die and random.random() < 0.3:
            return "dies"
        return random.choice(_FOR_A_WHILE if kind == "http" else _PULLED)

    def _harmless(self, random: Random, call: Call, kind: str) -> Trouble | None:
        slow: Trouble | None = "slow"
        if kind == "queue" and (call.params.get("limited") or call.key in self._slow):
            slow = None
        self._slow.add(call.key)
        return random.choice((None, None, None, slow, "twice" if kind == "queue" else None))

    def _always(self, service: str, asks: str, params: dict[str, Any], kind: str) -> Trouble | None:
        """The permanent trouble of a call, if any."""
        random = self._random("always", service, asks)
        if service == "turn" or kind == "local":
            return None
        if params.get("limited") and random.random() < 0.15:
            return "never"
        return random.choice(list(_ALWAYS)) if kind == "http" and random.random() < 0.06 else None

    def _answer(self, service: str, asks: str, input: Any, params: dict[str, Any]) -> Outcome:
        if service == "turn":
            visit = int(asks.split(":")[1])
            return Ok({"go": "again" if visit < MOST_TURNS and self._random(asks).random() < 0.7 else "done"})
        random = self._random("answer", service, asks, plain(input), params)
        if random.random() < 0.12:
            return Failed("service_error")
        value = {
            "n": random.randint(0, 9),
            "go": random.choice("xyz"),
            "list": [random.randint(0, 9) for _ in range(random.randint(0, 3))],
            "in": {"it": plain(input)} if random.random() < 0.2 else None,
        }
        return Ok(random.choice((value, value, value, random.randint(0, 9), "x", None, value["list"])))

    def _random(self, *what: Any) -> Random:
        text = msgspec.json.encode([self.seed, *what], order="deterministic")
        return Random(int.from_bytes(blake2b(text, digest_size=8).digest(), "big"))


class ErrorText(str):
    """An expected error text: a text that starts with this is equal to it."""

    __slots__ = ()


def plain(value: Any) -> Any:
    """A copy with error codes instead of error texts, because texts contain workers and times."""
    if isinstance(value, dict):
        if value.keys() == {"error"} and isinstance(value["error"], str):
            return {"error": value["error"].partition(":")[0]}
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list) else value


def alike(expected: Any, found: Any) -> bool:
    """Whether a JSON value is equal to the expected one, in which error texts can be `ErrorText`."""
    if isinstance(expected, ErrorText):
        return isinstance(found, str) and found.startswith(expected)
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(
            alike(part, found[key]) for key, part in expected.items()
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(alike, expected, found))
    return type(expected) is type(found) and bool(expected == found)
