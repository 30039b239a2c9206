"""The trace of a simulation: everything that happened, in order.

Entries are commands and replies, committed events, messages between actors, faults, and the starts and ends
of servers and bodies.

An entry keeps objects, so recording it is cheap; text is made on demand. The text contains nothing that
differs between processes (addresses, hashes, real time), so the trace of a seed is the same everywhere, byte
for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec
import trio

from ...actors.engine.ticket import Ticket
from ...gateway.client import ClientTicket
from ...protocol.errors import GreenroomError
from ...protocol.events import Event
from ...protocol.records import RunRecord, Snapshot
from ..determinism.seeded_run import SimulatedClock
from .story import Storyteller

Kind = Literal["step", "command", "reply", "event", "message", "body", "life", "fault", "webhook", "note"]


class Entry(NamedTuple):
    """One entry: its time (simulated seconds since the start), its subject, and what happened."""

    at: float
    kind: Kind
    who: str
    what: Any


class Command(NamedTuple):
    """A client's call of one of the engine's methods; `arguments` are JSON."""

    number: int
    name: str
    arguments: bytes


class Answer(NamedTuple):
    """The result of a command: a value, or the error that was raised."""

    number: int
    value: Any


class Message(NamedTuple):
    """A message to an actor, sent by the task `by`."""

    by: str
    message: str
    run: str | None


class Trace:
    """The entries of one simulation."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.entries: list[Entry] = []
        self._clock = clock
        self._ended = False
        self.commands = 0

    def add(self, kind: Kind, who: str, what: Any) -> None:
        """Add an entry at the present time."""
        if not self._ended:
            self.entries.append(Entry(self._clock.now, kind, who, what))

    def end(self, text: str) -> None:
        """Add the last entry. Anything that happens during the cleanup is not recorded."""
        self.add("fault", "", text)
        self._ended = True

    def command(self, client: str, name: str, arguments: Any) -> int:
        """Record a client's call of the engine; returns its number, which the reply repeats."""
        self.commands += 1
        self.add("command", client, Command(self.commands, name, _json(arguments)))
        return self.commands

    def message(self, kind: str, name: str, message: object) -> None:
        """Record a message to an actor: the observer in `actors/actor.py`."""
        sender = trio.lowlevel.current_task().name.strip()
        run = getattr(message, "run", None)
        sent = Message(sender, type(message).__name__, run if isinstance(run, str) else None)
        self.add("message", f"{kind} {name}" if name else kind, sent)

    def text(self, *, messages: bool = False) -> str:
        """One line for each entry; with `messages`, also for the messages between actors."""
        return "".join(f"{line(entry)}\n" for entry in self.entries if messages or entry.kind != "message")

    def story(self) -> str:
        """The whole trace in a readable form, with the messages between actors. Long lines are cut."""
        return Storyteller().tell(self.entries)

    def events(self) -> Iterator[Event]:
        """The events, in the order in which they were committed."""
        return (entry.what for entry in self.entries if entry.kind == "event")


def line(entry: Entry) -> str:
    """An entry as a line of text."""
    return f"{entry.at:14.6f}  {_written(entry.who, entry.kind, entry.what)}"


def _written(who: str, kind: Kind, what: Any) -> str:
    match kind:
        case "command":
            return f"{who} #{what.number}: {what.name} {what.arguments.decode()}"
        case "reply":
            return f"{who} #{what.number} <- {_shown(what.value)}"
        case "event":
            return f"{who} commits {_json(what).decode()}"
        case "message":
            about = f" about {what.run}" if what.run is not None else ""
            return f"    {what.by} -> {who}: {what.message}{about}"
        case _:
            return f"{who}: {what}" if who else str(what)


def _shown(value: Any) -> str:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, Ticket | ClientTicket):
        return f"run {value.id}{' joined' if value.joined else ''}"
    if isinstance(value, list) and value and isinstance(value[0], Ticket | ClientTicket | GreenroomError):
        return ", ".join(_shown(one) for one in value)
    if isinstance(value, RunRecord):
        return f"run {value.id} {value.status}"
    if isinstance(value, Snapshot):
        return f"snapshot at {value.seq}"
    return _json(value).decode()


def _placeholder(value: Any) -> str:
    return f"<{getattr(value, '__qualname__', None) or type(value).__qualname__}>"


_json = msgspec.json.Encoder(enc_hook=_placeholder, order="deterministic").encode
