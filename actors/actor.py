"""The small base that supervisor, handle, lane, run and journal stand on.

An actor is a trio task, a mailbox, and state that no one else touches. Others `tell` it messages, which
never waits; it takes all that has gathered at once, handles them in order, and sleeps again. When it has no
work left and its mailbox is empty it ends itself; the next message to its address starts it anew.

The mailbox is a list and a parked task rather than a trio memory channel: a batch is taken in one step, and
an idle actor needs about a third of the memory.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import trio

from .alarms import Alarms

logger = logging.getLogger("greenroom")

T = TypeVar("T")


class Address(NamedTuple):
    """Where a message goes: the kind of actor and its name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}" if self.name else self.kind


class Mailbox:
    """Messages for one actor, in the order they were told. Unbounded: the door is bounded instead."""

    __slots__ = ("_alarmed", "_messages", "_sleeper")

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._alarmed = False
        self._sleeper: trio.lowlevel.Task | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: object) -> None:
        """Add a message and wake the actor. Never waits."""
        self._messages.append(message)
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    def wake(self) -> None:
        """Wake the actor without a message: its deadline has come."""
        self._alarmed = True
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    async def take(self) -> list[Any]:
        """Wait for messages and take them all; none, if it is the deadline that has come."""
        if self._messages or self._alarmed:
            await trio.lowlevel.checkpoint()
        else:
            await self._sleep()
        return self.drain()

    def drain(self) -> list[Any]:
        """Take all messages that are there, without waiting."""
        self._alarmed = False
        taken, self._messages = self._messages, []
        return taken

    async def _sleep(self) -> None:
        self._sleeper = trio.lowlevel.current_task()

        def stop(_: object) -> trio.lowlevel.Abort:
            self._sleeper = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(stop)


class Reply(Generic[T]):
    """A one-shot reply. The first `set` or `fail` decides; any number of tasks may `get` it."""

    __slots__ = ("_error", "_value", "_waiting", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: Exception | None = None
        self._waiting: list[trio.lowlevel.Task] | None = None  # most replies are there before anyone waits

    def set(self, value: T) -> None:
        """Answer."""
        if not self.done:
            self._value = value
            self._finish()

    def fail(self, error: Exception) -> None:
        """Answer with an error, which is raised where the reply is awaited."""
        if not self.done:
            self._error = error
            self._finish()

    async def get(self) -> T:
        """Wait for the answer."""
        if self.done:
            await trio.lowlevel.checkpoint()
        else:
            await self._wait()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # `done` without an error: the value was set

    async def _wait(self) -> None:
        task = trio.lowlevel.current_task()
        if self._waiting is None:
            self._waiting = []
        waiting = self._waiting
        waiting.append(task)

        def stop(_: object) -> trio.lowlevel.Abort:
            waiting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(stop)

    def _finish(self) -> None:
        self.done = True
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            for task in waiting:
                trio.lowlevel.reschedule(task)


class Countdown(Reply[None]):
    """Answers another reply when it has itself been set `count` times."""

    __slots__ = ("_left", "_reply")

    def __init__(self, reply: Reply[Any], count: int) -> None:
        super().__init__()
        self._reply = reply
        self._left = count

    def set(self, value: None) -> None:
        self._left -= 1
        if not self._left:
            self._reply.set(None)


class Delivery(Protocol):
    """How a message gets to the actor at an address, wherever that is."""

    def tell(self, address: Address, message: object) -> None:
        """Deliver. Never waits; messages from one teller to one address keep their order."""


class Actor:
    """The loop: take what waits, handle it, sleep until the next message or `deadline`."""

    deadline: float = math.inf
    """When to wake up without a message, in trio's time; `on_deadline` is called then."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.mailbox = Mailbox()
        self._handling: Sequence[object] = ()

    def tell(self, message: object) -> None:
        """Put a message into the mailbox. Never waits."""
        self.mailbox.put(message)

    async def on_batch(self, messages: Sequence[Any]) -> None:
        """Handle the messages, in order."""
        raise NotImplementedError

    async def on_deadline(self) -> None:
        """The deadline has passed."""

    def has_work(self) -> bool:
        """Whether the actor must stay although its mailbox is empty."""
        return True

    def report(self) -> dict[str, Any]:
        """What the actor is doing, so that a stuck engine can be asked why."""
        return {"address": str(self.address), "mailbox": len(self.mailbox)}

    @trio.lowlevel.enable_ki_protection
    async def run(self, alarms: Alarms, deregister: Callable[[Actor], None]) -> None:
        """Work until there is nothing left to do."""
        alarm = math.inf
        messages = self.mailbox.drain()  # those that woke it
        try:
            while True:
                self._handling = messages
                if messages:
                    await self.on_batch(messages)
                if self.deadline != math.inf and self.deadline <= trio.current_time():
                    await self.on_deadline()
                if self.deadline != alarm:
                    alarm = self.deadline
                    alarms.set(self, alarm)
                # No checkpoint from here to the end: a message told in between would be lost.
                if not self.mailbox and not self.has_work():
                    alarms.set(self, math.inf)
                    deregister(self)
                    return
                messages = await self.mailbox.take()
        except Exception:
            logger.critical(
                "%s crashed, which stops the engine; it was handling %s",
                self.address,
                [describe(message) for message in self._handling],
                exc_info=True,
            )
            raise


def describe(message: object) -> str:
    """A message's type and the id of the run it is about, for logs; never its contents."""
    run = getattr(message, "run", None)
    return f"{type(message).__name__}({run})" if isinstance(run, str) else type(message).__name__


class Directory:
    """Which actors are awake, and how to wake the others: the delivery within one process."""

    def __init__(self, start: Callable[[Actor], None]) -> None:
        self._start = start
        self._awake: dict[Address, Actor] = {}
        self._expecting_none: tuple[str, trio.Event] | None = None
        self._makers: dict[str, Callable[[str], Actor | None]] = {}

    def makes(self, kind: str, maker: Callable[[str], Actor | None]) -> None:
        """Say how an actor of a kind is made from its name; `None` where there is nothing to wake."""
        self._makers[kind] = maker

    def tell(self, address: Address, message: object) -> None:
        actor = self._awake.get(address)
        if actor is None:
            actor = self._makers[address.kind](address.name)
            if actor is None:
                return
            self.add(actor)
        actor.mailbox.put(message)

    def add(self, actor: Actor) -> None:
        """Take an actor in and start it."""
        self._awake[actor.address] = actor
        self._start(actor)

    def remove(self, actor: Actor) -> None:
        """Forget an actor that has ended."""
        del self._awake[actor.address]
        if self._expecting_none is not None and not self.awake(self._expecting_none[0]):
            self._expecting_none[1].set()

    async def none_awake(self, kind: str) -> None:
        """Wait until no actor of a kind is awake."""
        if self.awake(kind):
            self._expecting_none = (kind, trio.Event())
            await self._expecting_none[1].wait()

    def __contains__(self, address: Address) -> bool:
        return address in self._awake

    def awake(self, kind: str) -> list[Address]:
        """The addresses of the actors of a kind that are awake."""
        return [address for address in self._awake if address.kind == kind]

    def reports(self) -> list[dict[str, Any]]:
        """What every awake actor is doing."""
        return [actor.report() for actor in self._awake.values()]
