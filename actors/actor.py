"""The small base that the supervisor, runs, the journal and other actors stand on.

An actor is a trio task, a channel, and state that no one else touches. Others `tell` it messages, which
never waits; it takes all that has gathered at once, handles them in order, and sleeps again. When it has no
work left and its channel is empty it ends itself; the next message to its address starts it anew.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, Protocol, get_args

import trio

from .alarms import Alarms
from .channel import Channel, Reply

logger = logging.getLogger("greenroom")

Kind = Literal["supervisor", "run", "journal", "catalog", "registry", "workqueue"]
"""An actor's address is its kind and its name."""

observer: Callable[[Kind, str, object], None] | None = None
"""Sees every message as it is told. Set by a simulation only, for as long as it lasts."""


class TellWhenSet(Reply[None]):
    """A reply that an actor hears of as a message."""

    __slots__ = ("_delivery", "_kind", "_message", "_name")

    def __init__(self, delivery: Delivery, kind: Kind, name: str, message: object) -> None:
        super().__init__()
        self._delivery = delivery
        self._kind: Kind = kind
        self._name = name
        self._message = message

    def set(self, value: None) -> None:
        self._delivery.tell(self._kind, self._name, self._message)


class Delivery(Protocol):
    """How a message gets to the actor at an address, wherever that is."""

    def tell(self, kind: Kind, name: str, message: object) -> bool:
        """Deliver. Never waits; messages from one teller to one address keep their order. False if there is
        nobody at the address any more."""


class Actor:
    """The loop: take what waits, handle it, sleep until the next message or `deadline`."""

    deadline: float = math.inf
    """When to wake up without a message, in trio's time; `on_deadline` is called then."""

    fails_with: tuple[type[Exception], ...] = ()
    """What stops the engine and is no bug: it says in one sentence what is to be done."""

    def __init__(self, kind: Kind, name: str) -> None:
        self.kind: Kind = kind
        self.name = name
        self.channel = Channel()
        self._handling: Sequence[object] = ()

    def tell(self, message: object) -> None:
        """Put a message into the channel. Never waits."""
        if observer is not None:
            observer(self.kind, self.name, message)
        self.channel.send_nowait(message)

    async def on_batch(self, messages: Sequence[Any]) -> None:
        """Handle the messages, in order."""
        raise NotImplementedError

    async def on_deadline(self) -> None:
        """The deadline has passed."""

    def has_work(self) -> bool:
        """Whether the actor must stay although its channel is empty."""
        return True

    def report(self) -> dict[str, Any]:
        """What the actor is doing, so that a stuck engine can be asked why."""
        waiting = self.channel.statistics().current_buffer_used
        return {"kind": self.kind, "name": self.name, "mailbox": waiting}

    def reports(self) -> list[dict[str, Any]]:
        """Its own report, and those of the parts that it keeps."""
        return [self.report()]

    @trio.lowlevel.enable_ki_protection
    async def run(
        self,
        alarms: Alarms,
        deregister: Callable[[Actor], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Work until there is nothing left to do. `failed` is told of an error before it comes out."""
        alarm = math.inf
        messages = self.channel.receive_all_nowait()  # those that woke it
        try:
            while True:
                if messages:
                    self._handling = messages
                    await self.on_batch(messages)
                if self.deadline != math.inf and self.deadline <= trio.current_time():
                    await self.on_deadline()
                    alarm = math.inf  # it has been used up, even if the next deadline is the same
                if self.deadline != alarm:
                    alarm = self.deadline
                    alarms.set(self, alarm)
                self._handling = messages = ()  # let go of what has been handled
                # No checkpoint from here to the end: a message told in between would be lost.
                channel = self.channel
                if channel.has_news:
                    await trio.lowlevel.checkpoint()
                elif self.has_work():  # as `receive_all`, without a coroutine more: there may be very many
                    await trio.lowlevel.wait_task_rescheduled(channel.park())
                else:
                    if alarm != math.inf:
                        alarms.set(self, math.inf)
                    deregister(self)
                    return
                messages = channel.receive_all_nowait()
        except trio.Cancelled:
            raise
        except BaseException as error:
            self._log(error)
            failed(error)
            raise

    def _log(self, error: BaseException) -> None:
        if isinstance(error, self.fails_with):
            logger.critical("the engine stops: %s", error)
        elif isinstance(error, Exception):
            logger.critical(
                "%s %r crashed, which stops the engine; it was handling %s",
                self.kind,
                self.name,
                [describe(message) for message in self._handling],
                exc_info=True,
            )


def describe(message: object) -> str:
    """A message's type and the id of the run it is about, for logs; never its contents."""
    run = getattr(message, "run", None)
    return f"{type(message).__name__}({run})" if isinstance(run, str) else type(message).__name__


class Directory:
    """Which actors are awake, and how to wake the others: the delivery within one process."""

    def __init__(self, start: Callable[[Actor], None]) -> None:
        self._start = start
        self._awake: dict[Kind, dict[str, Actor]] = {kind: {} for kind in get_args(Kind)}
        self._makers: dict[Kind, Callable[[str], Actor | None]] = {}
        self._expecting_none: tuple[Kind, trio.Event] | None = None

    def makes(self, kind: Kind, maker: Callable[[str], Actor | None]) -> None:
        """Say how an actor of a kind is made from its name; `None` where there is nothing to wake."""
        self._makers[kind] = maker

    def tell(self, kind: Kind, name: str, message: object) -> bool:
        actor = self._awake[kind].get(name)
        if actor is None:
            actor = self._makers[kind](name)
            if actor is None:
                return False
            self.add(actor)
        if observer is not None:
            observer(kind, name, message)
        actor.channel.send_nowait(message)
        return True

    def add(self, actor: Actor) -> None:
        """Take an actor in and start it."""
        self._awake[actor.kind][actor.name] = actor
        self._start(actor)

    def remove(self, actor: Actor) -> None:
        """Forget an actor that has ended."""
        del self._awake[actor.kind][actor.name]
        if self._expecting_none is not None and not self._awake[self._expecting_none[0]]:
            self._expecting_none[1].set()

    async def none_awake(self, kind: Kind) -> None:
        """Wait until no actor of a kind is awake."""
        if self._awake[kind]:
            self._expecting_none = (kind, trio.Event())
            await self._expecting_none[1].wait()

    def awake(self, kind: Kind) -> Collection[str]:
        """The names of the actors of a kind that are awake."""
        return self._awake[kind].keys()

    def reports(self) -> list[dict[str, Any]]:
        """What every awake actor is doing."""
        return [
            report
            for actors in self._awake.values()
            for actor in actors.values()
            for report in actor.reports()
        ]
