"""A lease in Redis, with the row in the store: which of them decides whether it is renewed."""

from __future__ import annotations

from greenroom.persistence.elections import ElectedRenewals
from greenroom.persistence.leasekeeping import Failed, Renewed, Taken, Told

TTL = 15.0


class Played:
    """Renewals whose results the test decides."""

    def __init__(self) -> None:
        self.down = False
        self.sent: list[float] = []

    def renew(self, sent: float) -> Told:
        if self.down:
            return Failed("unreachable")
        self.sent.append(sent)
        return Renewed(sent)

    def release(self) -> str | None:
        return None

    def abort(self) -> None:
        """Nothing is in progress."""


def renewals() -> tuple[ElectedRenewals, Played, Played]:
    elected, row = Played(), Played()
    return ElectedRenewals(elected, row, TTL, 0.0), elected, row  # type: ignore[arg-type]


def test_a_store_that_is_down_for_less_than_a_ttl_costs_no_lease():
    both, elected, row = renewals()
    row.down = True
    assert [both.renew(sent) for sent in (5.0, 10.0)] == [Renewed(5.0), Renewed(10.0)]
    row.down = False
    assert both.renew(15.0) == Renewed(15.0)
    assert (elected.sent, row.sent) == ([5.0, 10.0, 15.0], [15.0, 15.0])


def test_a_leader_that_does_not_reach_the_store_for_a_ttl_lets_its_lease_expire():
    both, elected, row = renewals()
    row.down = True
    for sent in (5.0, 10.0):
        both.renew(sent)
    assert both.renew(15.0) == Failed("unreachable")
    assert elected.sent == [5.0, 10.0]
    row.down = False
    assert both.renew(16.0) == Renewed(16.0)


def test_a_lease_that_redis_does_not_renew_is_not_renewed():
    both, elected, row = renewals()
    elected.down = True
    assert both.renew(5.0) == Failed("unreachable")
    assert row.sent == []


def test_a_row_that_another_node_has_taken_ends_the_lease():
    both, _, row = renewals()
    row.renew = lambda sent: Taken("node b")  # type: ignore[method-assign]
    assert both.renew(5.0) == Taken("node b")
