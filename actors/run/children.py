"""Select the child run for a body's call: a new one, or the one that an earlier body submitted.

A body that resumes from a checkpoint repeats its calls. A call is identified by its position and attempt,
which form the request id, and by its job, handle and parameters. A child with the same request id but other
terms belongs to another call: it is withdrawn, and the call gets a new child with the next request id.
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
    """The child runs of one body, which is the `caller`."""

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
        """Submit or find the child for the call at this position; the reply is answered at its end."""
        if options.request_id is not None:  # the body names the child itself
            with self._shielded():
                return await self._entry.submit(options, self._caller)
        earlier = await self._find_in_earlier_attempts(position, options)
        if earlier is not None:
            return earlier
        number = 1
        while True:
            request_id = self._request_id(self._attempt, position, number)
            number += 1
            try:
                with self._shielded():  # otherwise a child could be accepted and never tracked
                    accepted, ended = await self._entry.submit(
                        replace(options, request_id=request_id), self._caller
                    )
            except Conflict:
                stored = await self._entry.find(options, request_id)
                if stored is None or stored.same:
                    raise  # another conflict, such as a taken handle
                await self._withdraw(position, stored, options.on_conflict)
                continue
            if not accepted.joined or not ended.done or not _was_dropped(await self.record(accepted, ended)):
                return accepted, ended

    async def record(self, accepted: Accepted, ended: Reply[RunRecord | None]) -> RunRecord | None:
        """The record of a child that has ended, from the store if it is no longer in memory."""
        return await ended.get() or await self._journal.load_run(accepted.run)

    async def _find_in_earlier_attempts(
        self, position: int, options: SubmitOptions
    ) -> tuple[Accepted, Reply[RunRecord | None]] | None:
        """Find a succeeded child with the same terms that an earlier attempt called since the same
        checkpoint.

        A child that still executes is awaited: a crash ended that attempt before the child.
        """
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
            "run %s, attempt %d: call %d has another job, handle or parameters than in the previous body; "
            "child %s is withdrawn and a new one is submitted; a body that resumes from a checkpoint must "
            "make the same calls in the same order",
            self._run,
            self._attempt,
            position,
            stored.run,
        )
        if stored.parent == self._run:  # not another caller's run that the call had joined
            self._entry.tell(cancel_child(stored.run))
            if on_conflict in ("reject", "join"):
                await self._entry.end_of(stored.run)  # otherwise the new child is refused because of it

    def _request_id(self, attempt: int, position: int, number: int) -> str:
        request_id = f"{self._run}.{attempt}.{position}"
        return request_id if number == 1 else f"{request_id}.{number}"


def _was_dropped(child: RunRecord | None) -> bool:
    """Whether the child was cancelled because the previous body stopped waiting for it."""
    return child is not None and child.status is Status.CANCELLED and child.reason == "parent_cancelled"
