"""The base class of all actors, and the directory that delivers messages to them.

An actor is a trio task, a channel, and state that no one else touches. Others `tell` it messages, which never
waits. The actor takes all waiting messages, handles them in order, and sleeps again. When it has no work and
its channel is empty, it ends; the next message to its address starts it again.
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

Kind = Literal["supervisor", "run", "journal", "catalog", "registry", "workqueue", "schedules"]
"""An actor's address is its kind and its name."""

observer: Callable[[Kind, str, object], None] | None = None
"""Called with every message when it is sent. Set only by a simulation, while it runs."""


class TellWhenSet(Reply[None]):
    """A reply that sends an actor a message when it is set."""

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
    """Delivers messages to the actor at an address."""

    def tell(self, kind: Kind, name: str, message: object) -> bool:
        """Deliver a message. Never waits; messages from one sender to one address keep their order. Returns
        false if there is no longer an actor at the address."""


class Address:
    """Where to send messages for an actor that may not be awake."""

    def __init__(self, delivery: Delivery, kind: Kind, name: str = "") -> None:
        self._delivery = delivery
        self._kind: Kind = kind
        self._name = name

    def tell(self, message: object) -> None:
        """Send the actor a message. Never waits."""
        self._delivery.tell(self._kind, self._name, message)


class Actor:
    """The loop: take the waiting messages, handle them, sleep until the next message or `deadline`."""

    deadline: float = math.inf
    """When to call `on_deadline`, in trio's time."""

    fails_with: tuple[type[Exception], ...] = ()
    """Errors that stop the engine but are no bugs: they are logged with their message only, no traceback."""

    def __init__(self, kind: Kind, name: str) -> None:
        self.kind: Kind = kind
        self.name = name
        self.channel = Channel()
        self._handling: Sequence[object] = ()

    def tell(self, message: object) -> None:
        """Send the actor a message. Never waits."""
        if observer is not None:
            observer(self.kind, self.name, message)
        self.channel.send_nowait(message)

    async def on_batch(self, messages: Sequence[Any]) -> None:
        """Handle the messages, in order."""
        raise NotImplementedError

    async def on_deadline(self) -> None:
        """The deadline has passed."""

    def has_work(self) -> bool:
        """Whether the actor must stay awake although its channel is empty."""
        return True

    def report(self) -> dict[str, Any]:
        """The actor's current state, to find out why an engine is stuck."""
        waiting = self.channel.statistics().current_buffer_used
        return {"kind": self.kind, "name": self.name, "mailbox": waiting}

    def reports(self) -> list[dict[str, Any]]:
        """The reports of the actor and of its parts."""
        return [self.report()]

    @trio.lowlevel.enable_ki_protection
    async def run(
        self,
        alarms: Alarms,
        deregister: Callable[[Actor], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Work until there is nothing to do. `failed` is called with an error before it is raised."""
        alarm = math.inf
        messages = self.channel.receive_all_nowait()  # those that woke the actor
        try:
            while True:
                if messages:
                    self._handling = messages
                    await self.on_batch(messages)
                if self.deadline != math.inf and self.deadline <= alarms.now():
                    await self.on_deadline()
                    alarm = math.inf  # the alarm was used, even if the next deadline is the same
                if self.deadline != alarm:
                    alarm = self.deadline
                    alarms.set(self, alarm)
                self._handling = messages = ()  # free the handled messages
                # No checkpoint from here to the end: a message sent in between would be lost.
                channel = self.channel
                if channel.has_news:
                    await trio.lowlevel.checkpoint()
                elif self.has_work():  # `receive_all` without its coroutine: there can be very many actors
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
            logger.critical("engine stops: %s", error)
        elif isinstance(error, Exception):
            logger.critical(
                "actor %s %r crashed while handling %s; engine stops",
                self.kind,
                self.name,
                [describe(message) for message in self._handling],
                exc_info=True,
            )


def describe(message: object) -> str:
    """A message's type and the id of its run, for logs; never its contents."""
    run = getattr(message, "run", None)
    return f"{type(message).__name__}({run})" if isinstance(run, str) else type(message).__name__


class Directory:
    """The actors that are awake, and how to start the others: the delivery within one process."""

    def __init__(self, start: Callable[[Actor], None]) -> None:
        self._start = start
        self._awake: dict[Kind, dict[str, Actor]] = {kind: {} for kind in get_args(Kind)}
        self._makers: dict[Kind, Callable[[str], Actor | None]] = {}
        self._expecting_none: tuple[Kind, trio.Event] | None = None

    def makes(self, kind: Kind, maker: Callable[[str], Actor | None]) -> None:
        """Set the function that creates an actor of a kind from its name; `None` if there is none."""
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
        """Add an actor and start it."""
        self._awake[actor.kind][actor.name] = actor
        self._start(actor)

    def remove(self, actor: Actor) -> None:
        """Remove an actor that has ended."""
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
        """The reports of all actors that are awake."""
        return [
            report
            for actors in self._awake.values()
            for actor in actors.values()
            for report in actor.reports()
        ]
