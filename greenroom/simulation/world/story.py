"""The story of a simulation: its trace in a readable form, with one line for each entry.

Runs are named `run 1`, `run 2` in the order of their appearance, events are described in words, and long
lines are cut. `Trace.text` is the complete form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ...actors.engine.ticket import Ticket
from ...gateway.client import ClientTicket
from ...protocol.errors import GreenroomError
from ...protocol.events import (
    EngineChanged,
    Event,
    ExecutorChanged,
    FlowChanged,
    HandleChanged,
    InterruptClosed,
    InterruptOpened,
    LaneChanged,
    LeaderChanged,
    NodeChanged,
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
    ScheduleChanged,
    ScheduleFired,
    ScheduleMissed,
    WebhookChanged,
)
from ...protocol.records import RunRecord, Snapshot

if TYPE_CHECKING:
    from .trace import Answer, Command, Entry, Message

_LONGEST = 160
_ID = re.compile(r"[0-9a-f]{32}")
_ACTORS = ("supervisor", "run", "journal", "body")


class Storyteller:
    """Writes stories. It gives each run a short name, and keeps the names between calls."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def tell(self, entries: Iterable[Entry]) -> str:
        """The story of these entries, one line for each."""
        return "".join(f"{entry.at:10.3f}  {self._line(entry)}\n" for entry in entries)

    def named(self, text: str) -> str:
        """Replace the ids of runs in a text by their short names."""
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
                return self._cut(f"{who} calls #{what.number}: {_call(what)}")
            case "reply":
                return self._cut(f"{who} receives #{what.number}: {_answer(what)}")
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
            flags = ("place", "waiting_for", "detached", "interactive", "streaming", "compacting")
            changed = {name: getattr(event, name) for name in flags}
            return f"{_about(event)}: {_options({k: v for k, v in changed.items() if v is not None})}"
        case RunProgress():
            return f"{_about(event)}: attempt {event.attempt} has progress {event.done} of {event.total}"
        case RunLog():
            return f"{_about(event)}: attempt {event.attempt} logs {event.text!r}"
        case RunWaiting():
            blockers = ", ".join(event.blockers) or "no run"
            return f"{_about(event)}: has waited {event.waited:g} s, blocked by {blockers}"
        case RunMessage():
            return f"{_about(event)}: receives the message {_json(event.message)}"
        case InterruptOpened():
            return f"{_about(event)}: opens interrupt {event.interrupt} with key {event.key!r}"
        case InterruptClosed():
            return f"{_about(event)}: interrupt {event.interrupt} is {event.outcome}: {_json(event.answer)}"
        case RunSignal():
            return f"{_about(event)}: receives the signal {event.key!r}: {_json(event.value)}"
        case NodeStarted():
            return f"{_about(event)}: node {event.node} has started, visit {event.visit}"
        case NodeRan():
            return _node_run(event)
        case FlowChanged(version=None):
            return f"flow {event.name} is created"
        case FlowChanged():
            return f"flow {event.name} has version {event.version}, {event.status}"
        case NodeWorkerChanged():
            return f"worker {event.worker} is {event.status}{f' at {event.url}' if event.url else ''}"
        case ExecutorChanged():
            slots = "" if event.slots is None else f" with {event.slots} slots"
            return f"executor {event.executor} is {event.status}{slots}"
        case NodeChanged():
            return f"node {event.node} at {event.address} has {event.status}"
        case LeaderChanged():
            return f"node {event.node} at {event.address} leads in term {event.term}"
        case ScheduleChanged(state=None):
            return f"schedule {event.schedule} is deleted"
        case ScheduleChanged():
            return f"schedule {event.schedule} is next due at {event.state and event.state.next}"
        case ScheduleFired(refused=None):
            verb = "joins" if event.joined else "submits"
            return f"schedule {event.schedule} {verb} run {event.run} for {event.at_planned}"
        case ScheduleFired():
            return f"schedule {event.schedule} is refused for {event.at_planned}: {event.error}"
        case ScheduleMissed():
            return f"schedule {event.schedule} leaves out {event.count} due times up to {event.until}"
        case WebhookChanged():
            why = f" after {event.attempts} attempts: {event.error}" if event.to == "dead" else ""
            return f"webhook {event.webhook} of run {event.of_run} is {event.to}{why}"
        case LaneChanged():
            return f"lane {event.lane} has limit {event.limit}, generation {event.generation}"
        case HandleChanged(freed=None):
            return f"handle {event.handle} has the draft {_json(event.params)}"
        case HandleChanged():
            return f"handle {event.handle} is released from the body of run {event.freed}"
        case EngineChanged():
            draining = ", and is draining" if event.draining else ""
            return f"the engine has limit {event.max_concurrent}{draining}"


def _transition(event: RunStateChanged) -> str:
    run = _about(event)
    if event.from_ is None:
        place = "waits in its handle" if event.place is None else f"place {event.place}"
        return f"{run} is created, {place}: job {event.job}, params {_json(event.params)}"
    more = [f"attempt {event.attempt}"] if event.attempt else []
    more += [f"executor {event.executor}"] if event.executor is not None else []
    more += [f"reason {event.reason}"] if event.reason is not None else []
    more += [f"result {_json(event.result)}"] if event.result is not None else []
    more += [f"error {event.error!r}"] if event.error is not None else []
    more += ["its body keeps its handle"] if event.holds_handle else []
    return f"{run}: {event.from_} -> {event.to}" + (f" ({', '.join(more)})" if more else "")


def _node_run(event: NodeRan) -> str:
    branch = f" branch {event.branch}" if event.branch is not None else ""
    worker = f" at {event.worker}" if event.worker is not None else ""
    more = [event.status, *([f"action {event.action}"] if event.action is not None else [])]
    more += [f"attempt {event.attempt}"] if event.attempt > 1 else []
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
    return _value(answer.value)


def _value(value: Any) -> str:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, RunRecord):
        return f"run {value.id} is {value.status}"
    if isinstance(value, Snapshot):
        return f"the snapshot at {value.seq}"
    if isinstance(value, list) and value and isinstance(value[0], Ticket | ClientTicket | GreenroomError):
        return "; ".join(_value(one) for one in value)
    if isinstance(value, Ticket | ClientTicket):
        return f"{value.id}{' (joined)' if value.joined else ''}"
    return _json(value)


def _message(to: str, sent: Message) -> str:
    sender = sent.by.strip()
    if sender.partition(" ")[0] not in _ACTORS:
        sender = "the engine" if ".actors." in sender else "a caller"
    about = f" about run {sent.run}" if sent.run is not None and sent.run not in to else ""
    return f"{sender} -> {to}: {sent.message}{about}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()
