"""The entry point: validates submissions and passes them to the supervisor.

Validation runs in the caller's task, so a refused submission costs the actors nothing.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
import trio
from msgspec.structs import replace

from ...persistence.store import Memo, Terms
from ...protocol.batches import Refusals
from ...protocol.delays import check_deadline, not_before, unix_seconds
from ...protocol.errors import Conflict, GreenroomError, Invalid, Unavailable
from ...protocol.events import Event
from ...protocol.fold import Projection
from ...protocol.jobs import AnyJob
from ...protocol.names import check_name
from ...protocol.notify import plain_notify, read_notify
from ...protocol.records import RunRecord
from ...protocol.submission import WARN_AFTER, OnConflict, SubmitOptions
from ...protocol.validation import check_needs, check_request_id, check_seconds, check_tags
from ...protocol.values import shown
from .. import tracing
from ..actor import Actor, Address
from ..channel import Reply
from ..jobs import Job, Jobs, Special
from ..journal.journal import Journal
from ..journal.messages import Look, WatchEnd
from ..messages import Accepted, FindRequest, Submission, Submit, SubmitMany
from ..scheduling.supervisor import Supervisor
from ..webhooks.subscribing import Subscriptions
from .submission_checks import SubmissionChecks, check_coalesces, needs_of
from .submit_traces import all_traced, begin_trace, traced

T = TypeVar("T")

_LONGEST_LOOK = 1.0
"""Seconds that a read of committed state waits for the commits before it."""


class Found(msgspec.Struct, frozen=True, gc=False):
    """The run that a request id has created: whether its payload was the `same`, and its parent if the run is
    pending."""

    run: str
    same: bool
    parent: str | None


class Caller(msgspec.Struct, frozen=True, gc=False):
    """Who submits a run: a name for events, for a body its run and that run's ancestors, and the beginning of
    the request ids that are reserved for this caller."""

    by: str
    parent: str | None = None
    ancestors: tuple[str, ...] = ()
    request_ids: str | None = None


Together = Callable[[str], tuple[tuple[Event, ...], tuple[Memo, ...]]]
"""Returns events and memos to commit with the creation of a run, given its id."""


class EntryPoint:
    """Accepts runs from the embedding API, the gateway, and bodies that call a child."""

    def __init__(
        self,
        jobs: Jobs,
        supervisor: Supervisor,
        journal: Journal,
        ids: Callable[[], str],
        clock: Callable[[], float],
        max_value_bytes: int,
        subscriptions: Subscriptions,
    ) -> None:
        self.checks = SubmissionChecks(jobs, max_value_bytes, subscriptions)
        self.subscriptions = subscriptions
        self._jobs = jobs
        self._supervisor = supervisor
        self._journal = journal
        self._ids = ids
        self._clock = clock
        self._unanswered: dict[Reply[Any], None] = {}
        self._closed = False
        self.max_value_bytes = max_value_bytes

    @property
    def closed(self) -> bool:
        """Whether the engine has stopped and refuses every command."""
        return self._closed

    def tell(self, message: object) -> None:
        """Send the supervisor a message without a reply."""
        self._supervisor.tell(message)

    async def ask(self, message: Any, actor: Actor | Address | None = None) -> Any:
        """Send a message to the supervisor (or another actor) and wait for the reply. Raises `Unavailable` if
        the engine stops first."""
        self.check_open()
        by = getattr(message, "by", None)
        if by is not None:
            check_name("by", by)
        reply: Reply[Any] = message.reply
        (actor or self._supervisor).tell(message)
        del message  # its receiver can free it while the caller waits
        self._unanswered[reply] = None
        try:
            return await reply.get()
        except trio.Cancelled:
            reply.done = True  # the caller no longer waits
            raise
        finally:
            self._unanswered.pop(reply, None)

    async def ask_all(self, messages: Sequence[Any], actor: Actor | Address) -> None:
        """Send messages together, so that one commit can have their changes, and wait for all replies. Raises
        the first error; the other messages take effect nevertheless."""
        self.check_open()
        replies: list[Reply[Any]] = [message.reply for message in messages]
        for message in messages:
            actor.tell(message)
        self._unanswered.update(dict.fromkeys(replies))
        try:
            for reply in replies:
                await reply.get()
        finally:
            for reply in replies:
                reply.done = True  # the caller no longer waits
                self._unanswered.pop(reply, None)

    def check_open(self) -> None:
        """Raise `Unavailable` if the engine has stopped. For reads from the store, which may still answer."""
        if self._closed:
            raise Unavailable("engine has stopped")

    async def look(self, read: Callable[[Projection], T]) -> T:
        """Read committed state. While a commit takes long, read the state before it."""
        if not self._journal.store_is_down or self._closed:
            with trio.move_on_after(_LONGEST_LOOK):
                found: T = await self.ask(Look(read, Reply()), self._journal)
                return found
        await trio.lowlevel.checkpoint()
        return self._journal.look_now(read)

    def name_of(self, job: str | AnyJob) -> str:
        """See `Jobs.name_of`."""
        return self._jobs.name_of(job)

    @property
    def jobs(self) -> Jobs:
        """The jobs that the engine can run."""
        return self._jobs

    def lane_of(self, job: str) -> str:
        """The lane for runs of a job that are submitted without a lane."""
        return self._jobs.get(job).lane

    async def find(self, options: SubmitOptions, request_id: str) -> Found | None:
        """The run that this request id has created; `None` if a submission with it would create a new run."""
        registered = self._jobs.get(options.job)
        lane = self.checks.lane(registered, options)
        plain = self.checks.params(registered, options.params)
        found = await self.ask(FindRequest(request_id, Reply()))
        if found is None:
            return None
        run, fingerprint, parent = found
        return Found(run, fingerprint == _fingerprint(options, lane, plain), parent)

    async def active_run(self, handle: str) -> str | None:
        """The admitted run of a handle."""
        return await self.look(lambda committed: committed.active_run(handle))

    async def end_of(self, run: str) -> None:
        """Wait until a run has ended."""
        await self.ask(WatchEnd(run, Reply()), self._journal)

    def close(self) -> None:
        """Refuse every command from now on, and fail those that have no reply yet."""
        self._closed = True
        for reply in self._unanswered:
            reply.fail(
                Unavailable(
                    "engine stopped before it replied: after the restart, check whether the command took "
                    "effect"
                )
            )

    async def check(self, options: SubmitOptions) -> Any:
        """Check the submission of a schedule, except its handle; returns its parameters as JSON values."""
        plain = self.checks.repeated(options)
        special = self._jobs.get(options.job).special
        if special is not None:
            await special.prepare("", plain, self.ask)
        return plain

    async def submit(
        self, options: SubmitOptions, caller: Caller, together: Together | None = None
    ) -> tuple[Accepted, Reply[RunRecord | None]]:
        """Submit a run. Returns when it is committed, with the reply that its end will set. `together` gives
        events and memos to commit with its creation."""
        check_name("by", caller.by)
        submission = self._submission(options, caller, trio.current_time())
        if submission.job.special is not None:
            await self._prepare(submission.job.special, submission)
        if together is not None:
            submission.events, more = together(submission.id)
            submission.memos += more
        span = None
        if options.traceparent is not None or tracing.API in sys.modules:
            span = begin_trace(submission, options)
        asking = self.ask if span is None else partial(traced, span, self.ask)
        accepted: Accepted = await asking(Submit(submission, options.on_conflict, Reply()))
        return accepted, accepted.ended or submission.ended

    async def submit_many(
        self,
        runs: Sequence[T],
        options_of: Callable[[T], SubmitOptions],
        caller: Caller,
        *,
        all_or_nothing: bool,
    ) -> list[Accepted | GreenroomError]:
        """Submit runs together; `options_of` returns the options of one, or raises its error.

        Returns the outcome of each when they are committed; `ended` of an accepted one is set at its end.
        Like `submit`, it has no checkpoint before the supervisor has received the runs, except for flows.
        """
        check_name("by", caller.by)
        refusals: Refusals[Accepted] = Refusals(all_or_nothing)
        now = trio.current_time()
        submissions: list[Submission] = []
        on_conflicts: list[OnConflict] = []
        given: list[SubmitOptions] = []
        for index, run in enumerate(runs):
            try:
                options = options_of(run)
                if options.on_conflict == "coalesce":
                    raise Invalid(
                        'on_conflict must not be "coalesce" in a batch: submit the run alone, or use "queue"'
                    )
                submission = self._submission(options, caller, now)
                if submission.job.special is not None:
                    await self._prepare(submission.job.special, submission)
                submissions.append(submission)
                on_conflicts.append(options.on_conflict)
                given.append(options)
            except GreenroomError as error:
                refusals.add(index, error)
        if not submissions:
            await trio.lowlevel.checkpoint()
            return refusals.merged([])
        message = SubmitMany(submissions, on_conflicts, all_or_nothing, Reply())
        spans = [begin_trace(*pair) for pair in zip(submissions, given, strict=True)]
        return refusals.merged(await all_traced(spans, self.ask, message))

    async def _prepare(self, special: Special, submission: Submission) -> None:
        """Let the engine's own job check the parameters, and add what is committed with the run."""
        prepared = await special.prepare(submission.id, submission.params, self.ask)
        submission.params = prepared.params
        submission.memos = (*submission.memos, *prepared.memos)
        submission.created_at = trio.current_time()  # it may have waited

    def _submission(self, options: SubmitOptions, caller: Caller, now: float) -> Submission:
        """Check the options of a submission."""
        registered = self._jobs.get(options.job)
        id, handle = self._ids(), options.handle
        if handle is None and registered.special is not None:
            handle = f"task:{id}"  # each flow run has its own handle
        handle = check_name("handle", handle)
        lane = self.checks.lane(registered, options)
        options.check()
        if options.on_conflict == "coalesce":
            _check_coalesces(registered, caller)
        if handle in caller.ancestors:
            raise Conflict(
                f"handle {shown(handle)} is taken by a run that waits for this one: this run could not start",
                active_run=caller.parent,
            )
        not_before = None
        if options.start_at is not None or options.delay is not None:
            not_before = self._not_before(registered, options)
        plain = self.checks.params(registered, options.params)
        fingerprint = None
        if options.request_id is not None:
            check_request_id(options.request_id, caller.request_ids)
            fingerprint = _fingerprint(options, lane, plain)
        if fingerprint is None and caller.parent is None and options.has_usual_times and not_before is None:
            terms = registered.usual_terms
        else:
            terms = _terms(registered, options, caller, fingerprint)
        if not_before is not None and options.on_conflict == "replace" and not options.reserve:
            terms = replace(terms, replaces=True)
        if not_before is not None and options.on_conflict == "coalesce" and not options.reserve:
            terms = replace(terms, coalesces=True)
        submission = Submission(
            id=id,
            job=registered,
            handle=handle,
            lane=lane,
            kind=options.kind,
            params=plain,
            needs=needs_of(registered, options.needs) if options.needs else registered.needs,
            terms=terms,
            by=caller.by,
            created_at=now,
            on_wait=options.on_wait,
            ended=Reply(),
            priority=registered.priority if options.priority is None else options.priority,
        )
        if options.key is not None:
            submission.key = options.key
        if not_before is not None:
            submission.not_before, submission.reserves = not_before, options.reserve
            submission.uncommon = {"not_before": not_before}
        if caller.parent is not None:
            submission.uncommon = {**(submission.uncommon or {}), "parent": caller.parent}
        if options.tags:
            submission.uncommon = {**(submission.uncommon or {}), "tags": check_tags(options.tags)}
        if options.notify is not None or self._supervisor.machine.order.rules:
            submission.memos = self.subscriptions.of_run(id, lane, options.notify, self._clock)
        return submission

    def _not_before(self, job: Job, options: SubmitOptions) -> float | None:
        now = self._clock()
        at = not_before(options.start_at, options.delay, now)
        if at is not None:
            check_deadline(_limit("deadline", options.deadline, job.deadline), at, now)
        return at


def _terms(job: Job, options: SubmitOptions, caller: Caller, fingerprint: str | None) -> Terms:
    return Terms(
        request_id=options.request_id,
        fingerprint=fingerprint,
        queue_timeout=_limit("queue_timeout", options.queue_timeout, job.queue_timeout),
        run_timeout=_limit("run_timeout", options.run_timeout, job.run_timeout),
        deadline=_limit("deadline", options.deadline, job.deadline),
        warn_after=_limit("warn_after", options.warn_after, WARN_AFTER),
        parent=caller.parent,
        ancestors=caller.ancestors,
        announced=job.terms,
    )


def _check_coalesces(job: Job, caller: Caller) -> None:
    """Raise `Invalid` for a run whose parameters cannot be replaced by others."""
    check_coalesces(job)
    if caller.parent is not None:
        raise Invalid(
            'on_conflict must not be "coalesce" for a child run, which belongs to its parent: use "queue" or '
            '"join"'
        )


def _limit(what: str, given: float | None, default: float) -> float | None:
    seconds = default if given is None else check_seconds(what, given, default)
    return None if seconds == math.inf else seconds


def _fingerprint(options: SubmitOptions, lane: str, params: Any) -> str:
    payload: tuple[object, ...] = (options.job, options.handle, lane, options.kind, params)
    # Without the following options, the fingerprint is as in versions that lack them, whose ones are stored.
    if options.needs:
        payload += (check_needs(options.needs),)
    others: dict[str, Any] = {
        name: value for name in ("priority", "key") if (value := getattr(options, name)) is not None
    }
    if options.start_at is not None or options.delay is not None:
        others |= {"start_at": unix_seconds(options.start_at), "delay": options.delay}
        others["reserve"] = options.reserve
    if options.tags:
        others["tags"] = check_tags(options.tags)
    if options.notify is not None:
        others["notify"] = plain_notify(read_notify("notify", options.notify))
    if others:
        payload += (others,)
    return hashlib.blake2b(msgspec.json.encode(payload, order="sorted"), digest_size=16).hexdigest()
