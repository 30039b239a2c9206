"""What must be true of all events and of all marks, whatever happened to the processes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from greenroom import Event, Snapshot
from greenroom.protocol.events import InterruptClosed, RunLog, RunProgress, RunStateChanged
from greenroom.protocol.fold import Projection
from greenroom.protocol.records import RunRecord
from greenroom.protocol.states import ENDED, Status

from .marks import Mark


class Story:
    """The events, in order: each is checked against those before it."""

    def __init__(self) -> None:
        self.state: Projection
        self.ends: dict[str, RunStateChanged] = {}
        self.created: dict[str, RunStateChanged] = {}
        self.starts: defaultdict[str, dict[int, int]] = defaultdict(dict)  # run: fence: attempt
        self.logs: Counter[tuple[str, int]] = Counter()
        """How many lines each body has logged, by run and fence."""
        self.answers: dict[str, Any] = {}
        """The answers to interrupts, by id."""
        self.why: Counter[str] = Counter()
        """How often runs lost their bodies, and why."""
        self.losers: list[str | None] = []
        """The executors of these bodies."""
        self._steps: dict[str, tuple[int, float]] = {}
        self._children: set[tuple[str, int]] = set()

    def begin(self, snapshot: Snapshot) -> None:
        """The events after this snapshot follow."""
        self.state = Projection.from_snapshot(snapshot)

    def skip_progress(self, seq: int) -> None:
        """Events up to this one are missing: reports of progress, which are not stored."""
        self.state.seq = seq - 1

    def check_snapshot(self, snapshot: Snapshot) -> None:
        """The events have led to this snapshot, except for the progress; continue from it."""
        known, runs = self.state.snapshot(), snapshot.runs
        assert [_without_progress(run) for run in known.runs.values()] == [
            _without_progress(run) for run in runs.values()
        ]
        assert (known.handles, known.lanes, known.interrupts, known.executors) == (
            *(snapshot.handles, snapshot.lanes, snapshot.interrupts, snapshot.executors),
        )
        self.begin(snapshot)

    def take(self, item: Event) -> None:
        """Check the next event."""
        state = self.state
        assert item.seq == state.seq + 1, f"gap: event {item.seq} follows {state.seq}"
        match item:
            case RunStateChanged():
                self._changed(item)
            case RunProgress():
                fence, step = item.stats["fence"], item.done or 0
                assert fence == state.runs[item.run].fence, f"progress of an older body: {item}"
                before = self._steps.get(item.run)
                assert before is None or before[0] != fence or before[1] <= step, f"went back: {item}"
                self._steps[item.run] = fence, step
            case RunLog():
                assert int(item.text) == state.runs[item.run].fence, f"log of an older body: {item}"
                self.logs[item.run, int(item.text)] += 1
            case InterruptClosed(outcome="answered"):
                assert item.interrupt not in self.answers, f"answered twice: {item}"
                self.answers[item.interrupt] = item.answer
            case _:
                pass
        state.apply(item)

    def _changed(self, event: RunStateChanged) -> None:
        run = event.run
        assert run not in self.ends, f"run {run} changed after its end: {event}"
        if event.from_ is None:
            assert run not in self.created, f"run {run} was created twice"
            self.created[run] = event
        if event.to in ENDED:
            self.ends[run] = event
        if event.to is Status.RUNNING and event.interactive is not None:
            self.starts[run][event.seq] = event.attempt
        elif event.reason in _LOST:
            self.why[event.reason] += 1
            if event.reason == "not_begun":
                del self.starts[run][self.state.runs[run].fence]
            else:
                self.losers.append(self.state.runs[run].executor)


_LOST = ("executor_lost", "body_lost", "not_begun", "executor_drained", "executor_refused", "crashed")


def _without_progress(run: RunRecord) -> RunRecord:
    return replace(run, progress=None, updated_at=0.0)


def check_marks(
    story: Story,
    handles: Sequence[list[Mark]],
    pauses: Mapping[int, Sequence[tuple[float, float]]],
    notices_within: float,
) -> dict[str, int]:
    """Check that bodies of a handle did not overlap, and that nothing was lost that a body had an answer to:
    no checkpoint, no line of the log, and no answer to an interrupt; returns counts.

    A process that was stopped acts before it notices that its lease has expired, for `notices_within`
    seconds.
    """
    counts = {"bodies": 0, "stale marks": 0, "answers": 0}
    logs: Counter[tuple[str, int]] = Counter()
    answers: dict[tuple[str, int], Any] = {}  # by run and question
    for marks in handles:
        newest: Mark | None = None
        begun: set[int] = set()
        saved: dict[str, tuple[int, Any]] = {}
        for mark in marks:
            if mark.what == "begin":
                counts["bodies"] += 1
                assert mark.fence not in begun, f"two bodies with one fence: {mark}"
                begun.add(mark.fence)
                attempt = story.starts[mark.run].get(mark.fence)
                assert attempt == mark.attempt, f"no start was committed with this fence: {mark}"
                assert newest is None or newest.fence < mark.fence, f"{mark} began after {newest}"
                newest = mark
                _check_checkpoint(mark, saved)
                continue
            assert newest is not None, f"no body has begun: {mark}"
            if mark.what == "logged":
                logs[mark.run, mark.fence] += 1
            elif mark.what == "answered" and "to" in mark.value[1]:
                question, answer = mark.value
                counts["answers"] += 1
                assert story.answers[answer["to"]] == answer, f"was not answered: {mark}"
                assert answers.setdefault((mark.run, question), answer) == answer, f"answer is lost: {mark}"
            if mark.fence != newest.fence:
                assert mark.fence in begun, f"its body did not begin: {mark}"
                if mark.what == "saved" and mark.run == newest.run:  # its answer had arrived before the stop
                    assert (newest.value or 0) >= mark.value, f"was not refused: {mark}, {newest}"
                late = any(0 <= mark.at - until < notices_within for _, until in pauses.get(mark.pid, ()))
                assert late, f"overlap: {mark} after {newest}"
                counts["stale marks"] += 1
            elif mark.what == "saved":
                saved[mark.run] = mark.fence, mark.value
    assert logs <= story.logs, f"lines of the log are lost: {logs - story.logs}"
    return counts


def _check_checkpoint(begin: Mark, saved: Mapping[str, tuple[int, Any]]) -> None:
    last = saved.get(begin.run)
    if last is not None:
        assert isinstance(begin.value, int), f"checkpoint is lost: {begin}, saved {last}"
        assert begin.value >= last[1], f"checkpoint is older: {begin}, saved {last}"
