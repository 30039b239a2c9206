"""A lane: a queue in order of place, and the runs that execute under the lane's own limit.

It asks the supervisor for a slot for its first runs as soon as it has room for them itself, and passes the
slot that it gets to the run it was granted for. It never waits for anything but its mailbox.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import trio

from ..protocol.events import LaneChanged, RunChanged
from ..protocol.states import Status
from .actor import Actor, Delivery, Kind
from .change import Change
from .journal import Answer, Journal
from .messages import (
    Detached,
    Drop,
    Enter,
    Grant,
    Granted,
    Hold,
    LaneReport,
    Leave,
    LongWait,
    Reset,
    SetLimit,
    Submission,
)
from .placequeue import PlaceQueue
from .waitwatch import WaitWatch

_HOLDS_SLOT = frozenset({Status.RUNNING, Status.CANCELLING})


class Lane(Actor):
    """See the module's text.

    The first `_asked` runs of the queue are those it has asked a slot for; while the engine drains, those of
    the privileged among them.
    """

    def __init__(
        self,
        name: str,
        limit: int | None,
        generation: int,
        holding: bool,
        delivery: Delivery,
        journal: Journal,
    ) -> None:
        super().__init__("lane", name)
        self._limit = limit
        self._generation = generation
        self._delivery = delivery
        self._journal = journal
        self._holding = holding
        self._queue = PlaceQueue()
        self._privileged = PlaceQueue()  # those of the queue that may start while the engine drains
        self._asked = 0
        self._executing: dict[str, Submission] = {}
        self._submissions: dict[str, Submission] = {}  # of the queued runs
        self._returning: dict[str, int] = {}  # run: place, of those that a reset found with slots of theirs
        self._resets = 0  # that are settled when none is left of them
        self._watch = WaitWatch()
        self._report = LaneReport(name, generation)

    def has_work(self) -> bool:
        return bool(self._executing or len(self._queue) or self._returning)

    def report(self) -> dict[str, Any]:
        return super().report() | {
            "limit": self._limit,
            "generation": self._generation,
            "executing": list(self._executing),
            "queued": len(self._queue),
        }

    async def on_batch(self, messages: Sequence[Any]) -> None:
        for message in messages:
            _HANDLERS[type(message)](self, message)
        self._ask()
        self._delivery.tell("supervisor", "", self._report)
        self._report = LaneReport(self.name, self._generation)
        self.deadline = self._watch.deadline()

    async def on_deadline(self) -> None:
        now = trio.current_time()
        full = self._limit is not None and len(self._executing) >= self._limit
        blockers = list(self._executing) if full else None
        for submission, count in self._watch.take_told(now):
            waited = now - submission.created_at
            ahead = self._queue.ahead(submission.id)
            self._delivery.tell("supervisor", "", LongWait(submission, waited, ahead, blockers, count))
        self.deadline = self._watch.deadline()

    def _enter(self, message: Enter) -> None:
        submission = message.submission
        self._returned(submission.id)
        if message.settles:
            self._report.entered += 1
        self._queue.add(submission.id, message.place)
        self._submissions[submission.id] = submission
        if submission.privileged:
            self._privileged.add(submission.id, message.place)
        if not submission.begun:
            self._watch.add(submission, trio.current_time())
        eligible = self._eligible()
        if submission.id in eligible and eligible.ahead(submission.id) < self._asked:
            self._report.wants[message.place] = submission.id  # it came with an old place, before the others
            self._asked += 1

    def _granted(self, message: Grant) -> None:
        id = message.run
        eligible = self._eligible()
        fits = id in eligible and message.generation == self._generation and self._has_room()
        if fits and self._delivery.tell("run", id, Granted(message.generation)):
            self._executing[id] = self._take_out(id)
            return
        self._report.returned.append(message)
        if fits:
            self._withdraw(id)  # nobody is there to begin: the run is over, or the engine is being left
        elif id in eligible and eligible.ahead(id) < self._asked:
            # To the supervisor it isn't asked for any more; this batch may yet make room.
            self._report.wants[self._queue.place(id)] = id

    def _leave(self, message: Leave) -> None:
        self._report.settled += 1
        self._returned(message.run)
        if message.generation is None:
            self._withdraw(message.run)
        elif message.generation == self._generation:
            # An older generation frees nothing: its slots were freed by the reset that ended it.
            self._executing.pop(message.run, None)

    def _drop(self, message: Drop) -> None:
        self._report.settled += 1
        for id in message.runs:
            self._withdraw(id)

    def _hold(self, message: Hold) -> None:
        self._report.settled += 1
        room, self._asked = self._asked, 0
        for position in range(room):
            entry = self._eligible().at(position)
            assert entry is not None, "the asked runs are the first of the eligible"
            self._report.wants[entry[0]] = None
        self._holding = message.on

    def _set_limit(self, message: SetLimit) -> None:
        self._report.settled += 1
        self._limit = message.limit
        self._journal.tell(Change((self._changed(message.by),), reply=message.reply))

    def _reset(self, message: Reset) -> None:
        """Those that execute go on without slots. One that was granted its slot but has not begun when the
        journal hears of it comes back to its place; until that is clear, no higher place is asked for."""
        self._resets += 1
        self._generation = self._report.generation = message.generation
        self._journal.tell(Change((self._changed(message.by),)))
        for id, submission in self._executing.items():
            detached = RunChanged(by=message.by, detached=True, **submission.about())
            tells: tuple[tuple[Kind, str, object], ...] = (("lane", self.name, Detached(id)),)
            self._journal.tell(Change((detached,), run=id, expect=_HOLDS_SLOT, tells=tells))
            assert submission.place is not None, "what executes has a place"
            self._returning[id] = submission.place
        self._executing.clear()
        if not self._returning:
            self._settle_resets()
        self._journal.tell(Answer(message.reply))

    def _detached(self, message: Detached) -> None:
        self._returned(message.run)

    def _returned(self, run: str) -> None:
        """It is clear what a reset has made of a run."""
        if self._returning.pop(run, None) is not None and not self._returning:
            self._settle_resets()

    def _settle_resets(self) -> None:
        self._report.settled += self._resets
        self._resets = 0

    def _ask(self) -> None:
        """Ask for as many of the first runs as there is room for, no more and no less."""
        room = math.inf if self._limit is None else max(0, self._limit - len(self._executing))
        wants = self._report.wants
        eligible = self._eligible()
        bar = min(self._returning.values(), default=math.inf)
        if self._returning:
            room = min(room, eligible.below(bar))
        while self._asked > room:
            self._asked -= 1
            entry = eligible.at(self._asked)
            assert entry is not None, "the asked runs are the first of the eligible"
            wants[entry[0]] = None
        while self._asked < room:
            entry = eligible.at(self._asked)
            if entry is None:
                break
            wants[entry[0]] = entry[1]
            self._asked += 1
        head = eligible.at(self._asked)
        next_place = bar if head is None else min(bar, head[0])
        self._report.next_place = None if next_place == math.inf else int(next_place)

    def _eligible(self) -> PlaceQueue:
        return self._privileged if self._holding else self._queue

    def _has_room(self) -> bool:
        return self._limit is None or len(self._executing) < self._limit

    def _withdraw(self, id: str) -> None:
        """Take a run out that needs no slot any more."""
        submission = self._submissions.get(id)
        if submission is not None:
            place = self._queue.place(id)
            self._report.wants[place] = None
            self._take_out(id)

    def _take_out(self, id: str) -> Submission:
        eligible = self._eligible()
        if id in eligible and eligible.ahead(id) < self._asked:
            self._asked -= 1
        self._queue.remove(id)
        if id in self._privileged:
            self._privileged.remove(id)
        self._watch.drop(id)
        return self._submissions.pop(id)

    def _changed(self, by: str) -> LaneChanged:
        return LaneChanged(seq=0, at=0, by=by, lane=self.name, limit=self._limit, generation=self._generation)


_HANDLERS: dict[type, Any] = {
    Enter: Lane._enter,
    Grant: Lane._granted,
    Leave: Lane._leave,
    Drop: Lane._drop,
    Hold: Lane._hold,
    SetLimit: Lane._set_limit,
    Reset: Lane._reset,
    Detached: Lane._detached,
}
