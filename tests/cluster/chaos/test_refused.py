"""An engine that is not a node, and the nodes of a cluster, refuse each other's store."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom import Jobs, open_engine
from greenroom.errors import Conflict
from tests.executors.chaos.world import Program, free_port
from tests.servers import Server

from .world import world


async def test_an_engine_is_refused_while_a_cluster_has_the_store(tmp_path: Path, postgresql: Server):
    async with world(tmp_path, postgresql, count=1) as made:
        with pytest.raises(Conflict, match="in use"):
            async with open_engine(Jobs(), made.store, data_dir=tmp_path / "data"):
                pass
        command = ("serve", "--store", made.store, "--port", str(free_port()))
        program = Program(tmp_path / "log", *command)
        assert await program.ended() != 0
        assert b"is in use" in program.logged
        await made.ready()


async def test_a_node_refuses_a_store_that_an_engine_has(tmp_path: Path, postgresql: Server):
    async with world(tmp_path, postgresql, count=1, start=False) as made:
        async with open_engine(Jobs(), made.store, data_dir=tmp_path / "data") as engine:
            [node] = made.nodes
            made.start(node)
            assert await node.program.ended() != 0
            assert b"an engine that is not a node of a cluster" in node.program.logged
            assert b"start it with --cluster" in node.program.logged
            await engine.set_max_concurrent(5)
        made.start(node)
        await made.ready()
