"""What the services of the scenario answer, and which trouble their calls meet with: all of it planned.

An answer depends only on the seed, the service, the input, and which node, visit and branch asks: never on
who is asked, when, or how often. So it is known what a flow comes to, whatever happens on the way. Trouble is
either for a while, and then never lasts longer than a node's retries; or a call meets with it always, and
then that is its answer.
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
"""`turn` sends a walk round a loop, a few times; it never fails."""

FUNCTIONS = ("here", "there")

MOST_TURNS = 3


@attrs.frozen
class Ok:
    """It went well."""

    value: Any


@attrs.frozen
class Failed:
    """It went wrong, for a reason of this name."""

    code: str


Outcome = Ok | Failed

_ALWAYS: dict[Trouble, str] = {
    "status": "bad_status",
    "garbage": "bad_json",
    "shape": "bad_answer",
    "reset": "reset",
}
"""What one who is called may always meet with, and what that is named."""

UNLUCKY = frozenset({*_ALWAYS.values(), "unreachable", "timeout"})
"""What a try can be called that has met with trouble, as long as some worker is there."""

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
    """As planned."""


@attrs.define
class Plan:
    """See the module's text. In a `wild` one trouble lasts as long as it likes."""

    seed: str
    wild: bool = False
    met: Counter[str] = attrs.Factory(Counter)
    """By idempotency key: how often a call has met with trouble."""
    _slow: set[str] = attrs.Factory(set)

    def outcome(self, service: str, asks: str, input: Any, params: dict[str, Any], kind: str) -> Outcome:
        """What comes of a call by a node (`node:visit:branch`) in the end; `kind` is its `exec_type`."""
        trouble = self._always(service, asks, params, kind)
        if trouble == "never":
            return Failed("timeout")
        if trouble is not None:
            return Failed(_ALWAYS[trouble])
        return self._answer(service, asks if kind != "local" else "", input, params)

    async def serve(self, call: Call) -> Any:
        """Be a service."""
        asks = call.key.partition(":")[2]
        answer = self._answer(call.service, asks, call.input, call.params)
        if isinstance(answer, Failed):
            raise ServiceFailed("as planned")
        return answer.value

    def trouble(self, call: Call, kind: str, *, may_die: bool) -> Trouble | None:
        """What a call meets with at a worker."""
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
        """What every try of a call meets with."""
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
    """What is expected of the text of an error: that it begins with this."""

    __slots__ = ()


def plain(value: Any) -> Any:
    """A copy in which texts of errors are only their names, since they tell of workers and times, too."""
    if isinstance(value, dict):
        if value.keys() == {"error"} and isinstance(value["error"], str):
            return {"error": value["error"].partition(":")[0]}
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list) else value


def alike(expected: Any, found: Any) -> bool:
    """Whether a JSON value is what was expected."""
    if isinstance(expected, ErrorText):
        return isinstance(found, str) and found.startswith(expected)
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(
            alike(part, found[key]) for key, part in expected.items()
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(alike, expected, found))
    return type(expected) is type(found) and bool(expected == found)
