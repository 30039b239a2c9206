"""Mutants that behave like the original, by module: the function, the change, and the reason.

A change that is possible in several lines of a function is listed once, for the lines where it survives.
"""

from __future__ import annotations

_TRUTH = "the caller only tests whether it is true"
_BODY = "from `running`, this is allowed with and without a body"
_UNREAD = "it is never read"
_AGAIN = "it is offered again at the same place; the second entry is outdated when it is reached"
_SERIAL = "serial numbers only have to differ"
_NOT_BLOCKED = "a group that is not blocked has no run that is reported"
_ROOM = "a group whose executors have no room is blocked again when it is next"

EQUIVALENT: dict[str, dict[str, str]] = {
    "actors/scheduling/order.py": {
        "Order.grants: removed: continue": "the entry is outdated, so nothing can be granted for it",
        "Order.grants: removed: heappop(group.heads)": "the head is outdated, and removed when it is reached",
        "Order.enter: 1 → 2": _SERIAL,
        "Order.__init__: 0 → 1": _SERIAL,
    },
    "actors/scheduling/offers.py": {
        "Offers.offer: 0 → 1": "a lane is offered again at the same place; the second entry is outdated "
        "when it is reached, so only memory is lost",
        "Offers.offer: removed: return": _AGAIN,
        "Offers.offer_group: place < group.offered → place <= group.offered": _AGAIN,
        "Offers.serial: 1 → 2": _SERIAL,
        "Offers.__init__: 0 → 1": _SERIAL,
        "Offers.has_room_again: removed: return": _ROOM,
        "Offers.has_room_again: group.blocked and executor in group.able → group.blocked or executor in "
        "group.able": _ROOM,
        "Offers.take_blocked: removed: continue": _NOT_BLOCKED,
        "Offers.take_blocked: group.blocked and group.unreported → group.blocked or group.unreported": (
            _NOT_BLOCKED
        ),
    },
    "actors/scheduling/admission.py": {
        "Admission._is_repeat: return False → return None": _TRUTH,
        "Admission.commit_start: 1 → 2": "any number below 0 means that the run has no entry in this turn",
    },
    "actors/scheduling/supervisor.py": {
        "SupervisorMachine.__init__: removed: self._now = 0.0": "every entry point sets it",
        "SupervisorMachine.__init__: 0.0 → 1.0": "every entry point sets it",
        "SupervisorMachine._remove_from_lane: False → True": "it only matters for a suspect; a suspect that "
        "has ended is forgotten immediately, and a run that was not stored is no suspect",
    },
    "actors/scheduling/run_commands.py": {
        "RunCommands.free_handle: return False → return None": _TRUTH,
    },
    "actors/scheduling/trials.py": {
        "Trials.has_to_wait: return False → return None": _TRUTH,
        "Trials._trust: removed: self._lived.pop(run, None)": "only memory is lost: a run ends once",
    },
    "actors/run/machine.py": {
        "RunMachine.receive: removed: return": "no deferred message can be handled now",
        "RunMachine.has_work: return False → return None": _TRUTH,
        "RunMachine._started: True → False": _BODY,
    },
    "actors/run/transitions.py": {
        "move: 0 → 1": "the journal sets the event's seq and time",
        "move: True → False": _BODY,
        "_was_started: return False → return None": _TRUTH,
        "_was_started: False → True": "without a start, only a run that was not stored loses and gives way",
        ": False → True": "only an end without a body can race with a start, and it passes `gives_way`",
    },
    "actors/run/termination.py": {
        ": False → True": "a body is there only when it is abandoned, and only an end without one gives way",
        "expire: 'engine' → 'engine_other'": "a timeout is always the engine's",
        "stop: removed: return": "no statement follows",
        "stop: 'engine' → 'engine_other'": _UNREAD,
        "stop: 'keep' → 'keep_other'": "only `delete` is tested",
        "abandon: 'abandoned' → 'abandoned_other'": _UNREAD,
        "abandon: 'engine' → 'engine_other'": _UNREAD,
        "abandon: True → False": _UNREAD,
        "_commit_end: return False → return None": _TRUTH,
        "_commit_end: outcome.held or not run.submission.refused → "
        "outcome.held and (not run.submission.refused)": "a change that was not accepted was refused",
    },
    "actors/run/outcomes.py": {
        "_wait_for_retry: True → False": "a wait for a retry never counts as a wait in a body",
        "_pause: removed: run.next_attempt = run.attempt": "it has this value while a body executes",
    },
    "actors/run/restore.py": {
        "_continue_or_end: False → True": _BODY,
        "_resume_wait: 'signal' → 'signal_other'": "only the other kinds of waits are tested",
    },
    "actors/run/requests.py": {
        "inject: removed: return": "the gate of an ended run refuses, too; the first answer counts",
    },
    "actors/run/interrupts.py": {
        "Interrupts.open_without_body: False → True": _UNREAD,
    },
    "actors/run/message_gate.py": {
        "MessageGate.no_body: False → True": "`streaming` counts only with a body, which begins without it",
    },
    "actors/executors/checks.py": {
        "submit_options: 0 → 1": "the id of the command is not read",
        "checked_delay: 'retry_after' → 'retry_after_other'": "the error is not shown",
        "_check_duration: 0 → 1": "the default, which is for `None`, is not used",
    },
    "actors/journal/batch.py": {
        "DecidedBatch._progress: 0 → 1": "seq and time are set later",
        "DecidedBatch._holds: return False → return None": _TRUTH,
    },
    "protocol/fold.py": {
        "_Lane.__init__: 1 → 2": "no place is below 0",
        "_Lane.__init__: True → False": "the list is sorted once more",
        "_Lane.queue: place < self._highest → place <= self._highest": "no two runs have the same place",
        "_Lane.state: True → False": "the list is sorted once more",
        "_Lane.state: removed: self._sorted = True": "the list is sorted once more",
    },
    "actors/journal/machine.py": {
        "JournalMachine._answer: len(watchers) - 1 → len(watchers) + 1": "answered watchers are removed at "
        "other lengths, but as rarely",
        "JournalMachine.__init__: removed: self._mentioned_by = math.inf": "each turn sets it again",
        "JournalMachine._release_readers: removed: self._unread.clear()": "a reply is set once",
        "JournalMachine._refuse_new_run: return False → return None": _TRUTH,
        "JournalMachine._show: True → False": "each event has a record",
        "_refuse_answer: return False → return None": _TRUTH,
        "_refuse_answer: return True → return None": "it is refused, and a reply is set once",
        "_refuse_answer: True → False": "it is refused, and a reply is set once",
    },
}
