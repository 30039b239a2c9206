"""How a run continues when its body has ended: it ends, is retried, or is suspended until the next start.

If the body was not requested to end, its return value or exception decides. Otherwise the verdict of that
request decides, unless the body had finished before it noticed the request.
"""

from __future__ import annotations

import logging

from ...protocol.errors import RunCancelled
from ...protocol.events import RunLog
from ...protocol.states import Status
from ..messages import BodyGone
from .body_messages import BodyEnded, Lost, NeverBegan, Raised, Returned, Unfit
from .execution import Execution, LocalExecution
from .failures import RemoteError, log_failure
from .local_host import LocalHost
from .pause import Pause
from .restore import begin_elsewhere, continue_elsewhere, executor_lost, lapsed, refused, wait, without_body
from .retries import decide, delay
from .state import AnySteps, RunState, Steps, Verdict
from .termination import end, suspend_for_shutdown
from .transitions import lose_body, move

logger = logging.getLogger("greenroom")


def body_ended(run: RunState, message: BodyEnded) -> AnySteps | None:
    """The body has ended: decide how the run continues."""
    execution, host = run.execution, run.host
    assert execution is not None, "a run has one body at a time"
    assert host is not None, "every body has a host"
    run.execution = run.host = None
    if isinstance(execution, LocalExecution):
        return _after_body(run, message, execution, host)
    run.live_bodies.ended_elsewhere(execution)
    return _settle_after(_after_body(run, message, execution, host), execution)


def _settle_after(steps: AnySteps | None, execution: Execution) -> Steps:
    yield from steps or ()
    execution.settle()


def _after_body(run: RunState, message: BodyEnded, execution: Execution, host: LocalHost) -> AnySteps | None:
    run.inbox = execution.close("its body has ended")
    if host.files:
        run.keep_files(host)
    in_lane, run.resuming = run.resuming is not None, None
    run.adopted_wait = None
    if run.status is Status.SUSPENDED:
        run.leave_lane()
    run.gate.no_body()
    run.timers.drop("cancel_scope")
    run.timers.drop("abandon")
    if run.abandoned:
        if not run.ending:  # otherwise the body ended before the end of its run was committed
            run.effects.tell("supervisor", "", BodyGone(run.id, run.submission.handle))
        return None
    outcome, verdict = message.outcome, run.verdict
    if execution.lapsed and verdict is None:
        return lapsed(run, tuple(host.children), in_lane=in_lane)
    if verdict is None and isinstance(outcome, Returned):
        return _returned(run, outcome)
    if isinstance(outcome, Lost) and (verdict is None or verdict.to is Status.SUSPENDED):
        run.verdict = None
        return executor_lost(run, outcome, tuple(host.children), in_lane=in_lane)
    if isinstance(outcome, NeverBegan) and verdict is None:
        return begin_elsewhere(run, "not_begun")
    if isinstance(outcome, Unfit) and verdict is None:
        if run.status is Status.RUNNING:
            return refused(run, outcome)
        # The body had begun: it has released its slot.
        return executor_lost(run, Lost(outcome.why), tuple(host.children), in_lane=in_lane)
    unrecorded = not host.end_is_written
    if verdict is not None and verdict.to is Status.TIMED_OUT:
        return end(run, Status.TIMED_OUT, reason=verdict.reason, unrecorded=unrecorded)
    if isinstance(outcome, Pause) and (verdict is None or verdict.to is Status.SUSPENDED):
        return _pause(run, outcome)
    if isinstance(outcome, Returned):
        return _returned(run, outcome)
    if isinstance(outcome, Raised) and not _is_child_cancel(verdict, outcome.error):
        return _raised(run, outcome)
    assert verdict is not None, "a body's scope is cancelled only by a verdict"
    return _stopped(run, verdict, unrecorded=unrecorded)


def _pause(run: RunState, pause: Pause) -> Steps:
    """Suspend the run; it waits without a body."""
    opened = [] if pause.interrupt is None else run.interrupts.open_without_body(pause.interrupt)
    yield from move(
        run,
        Status.SUSPENDED,
        *opened,
        memos=(run.wakes_at(pause.until, pause.within, bodiless=True), *pause.memos),
        live_body=False,
        reason=pause.waiting_for,
        waiting_for=pause.waiting_for,
        interactive=False,
        by="body",
    )
    run.run_clock.stop(run.now)
    run.timers.drop("run_timeout")
    run.next_attempt = run.attempt
    wait(run, pause)


def _is_child_cancel(verdict: Verdict | None, error: BaseException) -> bool:
    """Whether the body raised because one of its child runs was cancelled together with it."""
    if verdict is None or verdict.to is not Status.CANCELLED:
        return False
    return isinstance(error, RunCancelled) or (isinstance(error, RemoteError) and error.child_cancelled)


def _returned(run: RunState, outcome: Returned) -> AnySteps:
    verdict = run.verdict
    if verdict is not None and verdict.to is Status.CANCELLED and outcome.obeyed:
        return end(run, Status.CANCELLED, reason=verdict.reason, by=verdict.by)
    return end(run, Status.SUCCEEDED, reason=None, result=outcome.value, by="body")


def _raised(run: RunState, outcome: Raised) -> Steps:
    attempt, error, job = run.attempt, outcome.error, run.submission.job
    decision = outcome.decision or decide(job, attempt, error)
    may_retry = run.verdict is None and not run.no_retry and decision.retries
    if not may_retry or attempt >= job.max_attempts:
        then = "and is not retried" if attempt < job.max_attempts else "and has no attempts left"
        log_failure(run.submission, attempt, error, decision.text, then)
        yield from end(run, Status.FAILED, reason="error", error=decision.text, by="body")
        return
    after = decision.after
    if after is None:
        after = delay(job, attempt, error, run.services.random)
    log_failure(run.submission, attempt, error, decision.text, f"and will be retried in {after:g} s")
    yield from _wait_for_retry(run, decision.text, after)


def _wait_for_retry(run: RunState, error: str, after: float) -> Steps:
    closing = run.closing("ended", None, "body")
    if run.status is Status.RUNNING:
        wakes_at = run.services.wall_clock() + after
        yield from move(
            run,
            Status.SUSPENDED,
            *closing,
            memos=(run.wakes_at(wakes_at, after, bodiless=True),),
            live_body=False,
            reason="retry",
            waiting_for="retry",
            interactive=False,
            error=error,
            retry_after=after,
            by="body",
        )
    else:  # another task of the body had released the slot to wait, so there is no transition
        text = f"attempt {run.attempt} failed and will be retried in {after:g} s: {error}"
        about = run.submission.about()
        log = RunLog(by="engine", attempt=run.attempt, text=text, level="warning", **about)
        yield from lose_body(run, *closing, log)
    run.forget_interrupts()
    run.timers.drop("run_timeout")
    run.run_clock.reset()
    run.next_attempt = run.attempt + 1
    run.timers.set("retry", run.now + after)


def _stopped(run: RunState, verdict: Verdict, *, unrecorded: bool) -> Steps:
    if verdict.to is not Status.SUSPENDED:
        yield from end(run, verdict.to, reason=verdict.reason, by=verdict.by, unrecorded=unrecorded)
        return
    elsewhere, executed = run.stopping is None, run.status is Status.RUNNING
    run.next_attempt = run.attempt
    if run.has_interrupts:
        run.interrupts.body_ended()
    if executed:
        yield from suspend_for_shutdown(run, verdict.reason, enters_again=elsewhere)
    elif elsewhere:
        yield from without_body(run, run.waiting_for)
    else:
        yield from lose_body(run)
    if elsewhere:
        continue_elsewhere(run, queued=executed)
