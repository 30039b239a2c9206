"""The lease of an executor: its machine, under any timing of answers."""

from hypothesis import given
from hypothesis import strategies as st

from greenroom.persistence.leasekeeping import EXECUTOR, Do, Failed, Keeping, Renewed

TTL = 30.0


def test_a_beat_is_sent_every_twelfth_of_the_ttl_and_again_sooner_if_it_fails():
    keeping = Keeping(TTL, 100, EXECUTOR)
    assert keeping.next() == 102.5
    assert keeping.turn(102.5) == [Do.RENEW]
    assert keeping.turn(102.7, Renewed(102.5)) == []
    assert keeping.next() == 105
    assert keeping.turn(105) == [Do.RENEW]
    assert keeping.turn(105.5, Failed("no leader is known")) == []
    assert keeping.next() == 106.5


def test_without_an_acknowledgement_bodies_are_cancelled_at_two_thirds_and_must_end_at_five_sixths():
    keeping = Keeping(TTL, 0, EXECUTOR)
    assert keeping.turn(5) == [Do.RENEW]
    keeping.turn(6, Failed("no line"))
    assert keeping.turn(19.9) == [Do.RENEW]
    keeping.turn(19.95, Failed("no line"))
    assert keeping.turn(20) == [Do.CANCEL]
    assert keeping.turn(24.9) == [Do.RENEW]
    assert keeping.turn(25, Failed("no line")) == [Do.END]


def test_bodies_can_begin_again_when_a_beat_is_acknowledged():
    keeping = Keeping(TTL, 0, EXECUTOR)
    keeping.turn(20)
    assert keeping.turn(27, Renewed(26.5)) == [Do.RESUME]
    assert keeping.acts_until == 46.5


def test_a_continued_process_cancels_its_bodies_at_once_and_gives_them_a_moment():
    keeping = Keeping(TTL, 0, EXECUTOR)
    assert keeping.turn(3600) == [Do.CANCEL, Do.RENEW]
    assert keeping.turn(3602) == [Do.END]


def test_an_engine_that_has_restarted_with_another_ttl_changes_the_lease():
    keeping = Keeping(TTL, 0, EXECUTOR)
    keeping.turn(1, Renewed(1, ttl=6))
    assert keeping.until == 7
    assert keeping.next() == 1.5
    assert keeping.acts_until == 5


answers = st.one_of(st.none(), st.floats(0, 60))
"""The delay of the answer to a beat; none for a beat that is lost."""


@given(st.lists(answers, max_size=60), st.floats(0.9, 1.1), st.floats(0, 0.5))
def test_no_body_executes_when_the_ttl_since_the_last_acknowledged_beat_has_passed(
    delays: list[float | None], rate: float, late: float
):
    """The executor's clock has this rate to the engine's, and each of its turns is this late, in seconds."""
    keeping = Keeping(TTL, 0, EXECUTOR)
    now, executes, acknowledged = 0.0, True, 0.0  # by the executor's clock
    arriving: list[tuple[float, float]] = []  # when an answer arrives, and when its beat was sent
    remaining = iter(delays)
    for _ in range(400):
        arriving.sort()
        due = keeping.next()
        told = None
        if arriving and arriving[0][0] <= due:
            now, sent = max(now, arriving[0][0]), arriving.pop(0)[1]
            told = Renewed(sent)
            acknowledged = max(acknowledged, sent)
        else:
            now = max(now, due) + late
        for do in keeping.turn(now, told):
            if do is Do.END:
                executes = False
            elif do is Do.RESUME:
                executes = True
            elif do is Do.RENEW:
                delay = next(remaining, None)
                if delay is not None:
                    arriving.append((now + delay, now))
            elif do is Do.ABORT:
                arriving.clear()
        if executes:
            assert (now - acknowledged) / rate < TTL
        if not executes and not arriving and next(remaining, None) is None:
            return
        if now > acknowledged + 10 * TTL:
            return
