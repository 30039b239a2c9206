"""Tickets of a cluster's nodes: one that a node issues opens the events at any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.errors import Unauthorized
from greenroom.gateway import Role, add_token, remove_token
from greenroom.gateway.auth.signed_tickets import SignedTickets
from greenroom.gateway.auth.tokens import EVERYONE, Caller

from .clustered import NodeHouse, cluster

ALICE = Caller("alice", Role.VIEWER, "a" * 64)
CALLERS = {"alice": ALICE, "bob": Caller("bob", Role.ADMIN, "b" * 64), "local": EVERYONE}


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def tickets(secret: str = "secret", clock: Clock | None = None) -> SignedTickets:
    return SignedTickets(secret, CALLERS.get, clock or Clock())


@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
def test_another_node_accepts_a_ticket_once(caller: Caller) -> None:
    ticket = tickets().issue(caller)
    other = tickets()
    assert other.redeem(ticket) == caller
    with pytest.raises(Unauthorized, match="invalid, used or expired ticket"):
        other.redeem(ticket)


def test_a_ticket_expires_after_30_seconds() -> None:
    clock = Clock()
    issuer = tickets(clock=clock)
    first, second = issuer.issue(ALICE), issuer.issue(ALICE)
    clock.now += 29.9
    assert issuer.redeem(first) == ALICE
    clock.now += 0.2
    with pytest.raises(Unauthorized):
        issuer.redeem(second)


def test_a_ticket_of_another_secret_caller_or_text_is_refused() -> None:
    ticket = tickets().issue(ALICE)
    with pytest.raises(Unauthorized):
        tickets("another").redeem(ticket)
    changed = SignedTickets("secret", {"alice": Caller("alice", Role.VIEWER, "c" * 64)}.get, Clock())
    with pytest.raises(Unauthorized):
        changed.redeem(ticket)
    for index in range(len(ticket)):
        forged = ticket[:index] + ("A" if ticket[index] != "A" else "B") + ticket[index + 1 :]
        with pytest.raises(Unauthorized):
            tickets().redeem(forged)
    for garbage in ("", "A", "ticket", "ä", "A" * 10_000, ticket + "AAAA", ticket[:-4]):
        with pytest.raises(Unauthorized):
            tickets().redeem(garbage)


async def opens(node: NodeHouse, ticket: str) -> int:
    return (await node.http("HEAD", f"/api/events?ticket={ticket}")).status


async def test_a_page_can_use_its_ticket_at_any_node(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    mark = {"authorization": f"Bearer {add_token(file, 'alice', Role.VIEWER)}"}
    async with cluster(tmp_path, token_file=str(file)) as nodes:
        for issuer, other in (nodes, nodes[::-1]):
            ticket = (await issuer.http("POST", "/api/tickets", **mark)).json["ticket"]
            assert await opens(other, ticket) == 200
            assert await opens(other, ticket) == 401
        ticket = (await nodes[0].http("POST", "/api/tickets", **mark)).json["ticket"]
        remove_token(file, "alice")
        nodes[1].gateway.reconfigure(nodes[1].config)
        assert await opens(nodes[1], ticket) == 401
