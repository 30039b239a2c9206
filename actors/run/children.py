"""Which child run a body gets for a call: a new one, or the one that the call had before.

A body that goes on from a checkpoint makes its calls again. A call is known by its position and its attempt,
and by what was called: a child of other terms under the same request id belongs to another call. It is
withdrawn, and the call gets a child of its own under the next request id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

from msgspec.structs import replace

from ...protocol.errors import Conflict
from ...protocol.records import RunRecord
from ...protocol.states import Status
from ...protocol.submission import SubmitOptions
from ..channel import Reply
from ..engine.entry_point import Caller, EntryPoint, Found
from ..journal.journal import Journal
from ..messages import Accepted
from .body_messages import cancel_child

logger = logging.getLogger("greenroom")


class Children:
    """The children of one body, which is the `caller`."""

    def __init__(
        self,
        caller: Caller,
        attempt: int,
        entry: EntryPoint,
        journal: Journal,
        shielded: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._caller = caller
        self._run = caller.parent
        self._shielded = shielded
        self._attempt = attempt
        self._entry = entry
        self._journal = journal

    async def call(self, position: int, options: SubmitOptions) -> tuple[Accepted, Reply[RunRecord | None]]:
        """The child for the call at this position, with the reply that its end will answer."""
        if options.request_id is not None:  # the body names the child itself
            with self._shielded():
                return await self._entry.submit(options, self._caller)
        earlier = await self._of_earlier_attempts(position, options)
        if earlier is not None:
            return earlier
        number = 1
        while True:
            request_id = self._request_id(self._attempt, position, number)
            number += 1
            try:
                with self._shielded():  # or a child might be let in that nobody knows of
                    accepted, ended = await self._entry.submit(
                        replace(options, request_id=request_id), self._caller
                    )
            except Conflict:
                stored = await self._entry.find(options, request_id)
                if stored is None or stored.same:
                    raise  # it is about something else: the handle is taken, say
                await self._withdraw(position, stored, options.on_conflict)
                continue
            if not accepted.joined or not ended.done or not _was_given_up(await self.record(accepted, ended)):
                return accepted, ended

    async def record(self, accepted: Accepted, ended: Reply[RunRecord | None]) -> RunRecord | None:
        """The child as it was at its end, however long ago that was."""
        return await ended.get() or await self._journal.load_run(accepted.run)

    async def _of_earlier_attempts(
        self, position: int, options: SubmitOptions
    ) -> tuple[Accepted, Reply[RunRecord | None]] | None:
        """A child of the same terms that an earlier attempt has called since the same checkpoint, if it has
        succeeded. One that still executes is waited for: a crash has ended that attempt before its child."""
        for attempt in range(self._attempt - 1, 0, -1):
            number = 1
            while True:
                request_id = self._request_id(attempt, position, number)
                found = await self._entry.find(options, request_id)
                if found is None:
                    break
                number += 1
                if found.parent == self._run and not await self._is_being_cancelled(found.run):
                    if found.same:
                        with self._shielded():
                            again = replace(options, request_id=request_id)
                            return await self._entry.submit(again, self._caller)
                    await self._withdraw(position, found, options.on_conflict)
                run = await self._journal.load_run(found.run) if found.same else None
                if run is not None and run.status is Status.SUCCEEDED:
                    ended: Reply[RunRecord | None] = Reply()
                    ended.set(run)
                    return Accepted(run.id, True), ended
        return None

    async def _is_being_cancelled(self, child: str) -> bool:
        record = await self._journal.look(lambda committed: committed.runs.get(child))
        return record is not None and (record.ended or record.status is Status.CANCELLING)

    async def _withdraw(self, position: int, stored: Found, on_conflict: str) -> None:
        logger.warning(
            "run %s, attempt %d: call %d is of another job, handle or parameters than that of its last body: "
            "child %s is withdrawn and a new one is submitted; a body that goes on from a checkpoint should "
            "call the same in the same order",
            self._run,
            self._attempt,
            position,
            stored.run,
        )
        if (
            stored.parent == self._run
        ):  # it is pending, and no run of somebody else's that the call had joined
            self._entry.tell(cancel_child(stored.run))
            if on_conflict in ("reject", "join"):
                await self._entry.end_of(stored.run)  # or the new child would be refused because of it

    def _request_id(self, attempt: int, position: int, number: int) -> str:
        request_id = f"{self._run}.{attempt}.{position}"
        return request_id if number == 1 else f"{request_id}.{number}"


def _was_given_up(child: RunRecord | None) -> bool:
    """Whether the body before had stopped waiting for the child, so that it was cancelled."""
    return child is not None and child.status is Status.CANCELLED and child.reason == "parent_cancelled"
