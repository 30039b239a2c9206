"""The asyncio interface has every method of the trio interface, with the same signature."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import greenroom.aio
from greenroom.actors.aio.run import AsyncioFile, AsyncioRun
from greenroom.actors.engine import api as engine_api
from greenroom.actors.engine.ticket import Ticket
from greenroom.actors.executors.api import Executors
from greenroom.actors.flow.api import Flows
from greenroom.actors.run.api import Run, RunFile
from greenroom.actors.schedules.api import Schedules
from greenroom.actors.webhooks.api import Webhooks
from greenroom.actors.workers.api import Workers
from greenroom.aio import client, engine
from greenroom.gateway.client import Client, ClientTicket, interface
from greenroom.gateway.client.cluster import ClientCluster
from greenroom.gateway.client.executors import ClientExecutors
from greenroom.gateway.client.flows import ClientFlows
from greenroom.gateway.client.schedules import ClientSchedules
from greenroom.gateway.client.webhooks import ClientWebhooks
from greenroom.gateway.client.workers import ClientWorkers

FOR_THE_GATEWAY = {
    "Engine": set(
        "blocked check_open commit_seconds committed has_lease history_page job_of lane_of lease_lapsed look "
        "max_value_bytes node_changed stopped store_is_down stream submit_many_options submit_options".split()
    ),
    "Workers": {"give_back", "permit", "queued"},
    "Executors": {"blocked", "ended", "lost", "serve", "ttl"},
    "Webhooks": {"attempted", "counts"},
    "Schedules": {"configure"},  # for the server, when it reads its configuration again
    "Client": {"send_submission"},
}

PAIRS: list[tuple[type, type]] = [
    (engine_api.Engine, engine.Engine),
    (Ticket, engine.Ticket),
    (Flows, engine.Flows),
    (Workers, engine.Workers),
    (Executors, engine.Executors),
    (Schedules, engine.Schedules),
    (Webhooks, engine.Webhooks),
    (Client, client.Client),
    (ClientTicket, client.ClientTicket),
    (ClientFlows, client.ClientFlows),
    (ClientWorkers, client.ClientWorkers),
    (ClientExecutors, client.ClientExecutors),
    (ClientSchedules, client.ClientSchedules),
    (ClientWebhooks, client.ClientWebhooks),
    (ClientCluster, client.ClientCluster),
    (Run, AsyncioRun),
    (RunFile, AsyncioFile),
]


def public(cls: type) -> dict[str, Any]:
    ours = [base for base in reversed(cls.__mro__) if base.__module__.startswith("greenroom.")]
    return {name: member for base in ours for name, member in vars(base).items() if not name.startswith("_")}


@pytest.mark.parametrize(("original", "facade"), PAIRS, ids=[facade.__name__ for _, facade in PAIRS])
def test_every_method_exists_with_its_signature(original: type, facade: type):
    expected = {
        name: member
        for name, member in public(original).items()
        if name not in FOR_THE_GATEWAY.get(original.__name__, ())
    }
    assert set(expected) == set(public(facade))
    for name, member in expected.items():
        ours = public(facade)[name]
        if inspect.isfunction(member):
            assert inspect.signature(ours).parameters == inspect.signature(member).parameters, name
            waits = inspect.iscoroutinefunction(ours)
            assert waits or not inspect.iscoroutinefunction(member), name


def test_engine_and_client_have_every_name_of_their_common_interface():
    for protocol, facades in (
        (interface.RunEngine, (engine.Engine, client.Client)),
        (interface.RunTicket, (engine.Ticket, client.ClientTicket)),
        (interface.RunFlows, (engine.Flows, client.ClientFlows)),
        (interface.EngineWorkers, (engine.Workers, client.ClientWorkers)),
        (interface.EngineExecutors, (engine.Executors, client.ClientExecutors)),
        (interface.RunSchedules, (engine.Schedules, client.ClientSchedules)),
        (interface.RunWebhooks, (engine.Webhooks, client.ClientWebhooks)),
    ):
        for facade in facades:
            parts = {"flows", "workers", "executors", "schedules", "webhooks"}
            attributes = {*public(facade), "id", "joined", *parts}
            assert set(public(protocol)) <= attributes


def test_the_functions_that_open_have_the_same_signatures():
    for ours, theirs in (
        (greenroom.aio.open_engine, greenroom.open_engine),
        (greenroom.aio.connect, greenroom.connect),
    ):
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters


def test_every_public_name_can_be_imported():
    assert {name for name in greenroom.aio.__all__ if hasattr(greenroom.aio, name)} == {
        *greenroom.aio.__all__
    }
    assert {*greenroom.aio.__all__} <= {*dir(greenroom.aio)}
    with pytest.raises(AttributeError, match="no attribute 'open_motor'"):
        _ = greenroom.aio.open_motor  # type: ignore[attr-defined]
