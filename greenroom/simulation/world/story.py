"""A trace as a story for people: who asked for what, who told whom, what was committed, and what failed.

Runs are named `run 1`, `run 2` in the order in which they appear, events are told in words, and what is long
is cut. The trace's own text holds everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ...actors.engine.ticket import Ticket
from ...gateway.client import ClientTicket
from ...protocol.events import (
    EngineChanged,
    Event,
    FlowChanged,
    HandleChanged,
    InterruptClosed,
    InterruptOpened,
    LaneChanged,
    NodeRan,
    NodeStarted,
    NodeWorkerChanged,
    RunChanged,
    RunEvent,
    RunLog,
    RunMessage,
    RunProgress,
    RunSignal,
    RunStateChanged,
    RunWaiting,
)
from ...protocol.records import RunRecord, Snapshot

if TYPE_CHECKING:
    from .trace import Answer, Command, Entry, Told

_LONGEST = 160
_ID = re.compile(r"[0-9a-f]{32}")
_ACTORS = ("supervisor", "run", "journal", "body")


class Storyteller:
    """Remembers which name each run has been given."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def tell(self, entries: Iterable[Entry]) -> str:
        """The story of these entries, a line for each."""
        return "".join(f"{entry.at:10.3f}  {self._line(entry)}\n" for entry in entries)

    def named(self, text: str) -> str:
        """A text with the names of runs in place of their ids."""
        text = text.replace("run run", "run")
        return _ID.sub(self._name, text).replace("run run ", "run ")

    def _name(self, id: re.Match[str]) -> str:
        return self._names.setdefault(id[0], f"run {len(self._names) + 1}")

    def _line(self, entry: Entry) -> str:
        who, what = entry.who, entry.what
        match entry.kind:
            case "step":
                return f"---- {what}"
            case "command":
                return self._cut(f"{who} asks #{what.number}: {_call(what)}")
            case "reply":
                return self._cut(f"{who} is answered #{what.number}: {_answer(what)}")
            case "message":
                return self._cut(f"    {_message(who, what)}")
            case "event":
                by = f" (by {what.by})" if what.by not in ("engine", "body") else ""
                return self._cut(f"{who} commits {what.seq}: {_event(what)}") + self.named(by)
            case "body":
                return self._cut(f"body of run {who}: {what}")
            case "fault":
                return self.named(f"!!!! {who}: {what}" if who else f"!!!! {what}")
            case _:
                return self._cut(f"{who}: {what}")

    def _cut(self, text: str) -> str:
        text = self.named(text)
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _event(event: Event) -> str:
    match event:
        case RunStateChanged():
            return _transition(event)
        case RunChanged():
            flags = ("place", "detached", "interactive", "streaming", "compacting")
            changed = {name: getattr(event, name) for name in flags}
            return f"{_about(event)}: {_options({k: v for k, v in changed.items() if v is not None})}"
        case RunProgress():
            return f"{_about(event)}: attempt {event.attempt} has come to {event.done} of {event.total}"
        case RunLog():
            return f"{_about(event)}: attempt {event.attempt} says {event.text!r}"
        case RunWaiting():
            behind = ", ".join(event.blockers) or "nobody"
            return f"{_about(event)}: has waited {event.waited:g} s, behind {behind}"
        case RunMessage():
            return f"{_about(event)}: gets the message {_json(event.message)}"
        case InterruptOpened():
            return f"{_about(event)}: asks {event.interrupt} under key {event.key!r}"
        case InterruptClosed():
            return f"{_about(event)}: {event.interrupt} is {event.outcome}: {_json(event.answer)}"
        case RunSignal():
            return f"{_about(event)}: gets {_json(event.value)} under {event.key!r}"
        case NodeStarted():
            return f"{_about(event)}: node {event.node} has begun, visit {event.visit}"
        case NodeRan():
            return _node_run(event)
        case FlowChanged(version=None):
            return f"flow {event.name} is made"
        case FlowChanged():
            return f"flow {event.name} has version {event.version}, {event.status}"
        case NodeWorkerChanged():
            return f"worker {event.worker} is {event.status}{f' at {event.url}' if event.url else ''}"
        case LaneChanged():
            return f"lane {event.lane} has limit {event.limit}, generation {event.generation}"
        case HandleChanged(freed=None):
            return f"handle {event.handle} has the draft {_json(event.params)}"
        case HandleChanged():
            return f"handle {event.handle} is freed from the body of run {event.freed}"
        case EngineChanged():
            draining = ", and drains" if event.draining else ""
            return f"the engine takes {event.max_concurrent} at once{draining}"


def _transition(event: RunStateChanged) -> str:
    run = _about(event)
    if event.from_ is None:
        place = "waits in its handle" if event.place is None else f"place {event.place}"
        return f"{run} is created, {place}: job {event.job}, params {_json(event.params)}"
    more = [f"attempt {event.attempt}"] if event.attempt else []
    more += [f"reason {event.reason}"] if event.reason is not None else []
    more += [f"result {_json(event.result)}"] if event.result is not None else []
    more += [f"error {event.error!r}"] if event.error is not None else []
    more += ["its body holds its handle still"] if event.holds_handle else []
    return f"{run}: {event.from_} -> {event.to}" + (f" ({', '.join(more)})" if more else "")


def _node_run(event: NodeRan) -> str:
    branch = f" branch {event.branch}" if event.branch is not None else ""
    worker = f" at {event.worker}" if event.worker is not None else ""
    more = [event.status, *([f"action {event.action}"] if event.action is not None else [])]
    more += [f"try {event.attempt}"] if event.attempt > 1 else []
    more += [event.error] if event.error is not None else []
    return f"{_about(event)}: node {event.node}{branch} has run{worker}: {', '.join(more)}"


def _about(event: RunEvent) -> str:
    return f"run {event.run} of {event.handle} in lane {event.lane}"


def _call(command: Command) -> str:
    arguments = msgspec.json.decode(command.arguments)
    shown = [_options(a) if isinstance(a, dict) and a is arguments[-1] else _json(a) for a in arguments]
    return f"{command.name}({', '.join(shown)})"


def _options(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_json(value)}" for name, value in options.items())


def _answer(answer: Answer) -> str:
    value = answer.value
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, RunRecord):
        return f"run {value.id} is {value.status}"
    if isinstance(value, Snapshot):
        return f"the snapshot at {value.seq}"
    if isinstance(value, Ticket | ClientTicket):
        return f"{value.id}{', which it joins' if value.joined else ''}"
    return _json(value)


def _message(to: str, told: Told) -> str:
    teller = told.by.strip()
    if teller.partition(" ")[0] not in _ACTORS:
        teller = "the engine" if ".actors." in teller else "a caller"
    about = f" about run {told.run}" if told.run is not None and told.run not in to else ""
    return f"{teller} -> {to}: {told.message}{about}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()
