"""What a walk uses of the engine, in addition to its run."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

import msgspec

from ...persistence.store import Store
from ...protocol.errors import NotFound
from ...protocol.flow.model import Graph
from ...protocol.flow.reading import read_graph
from ...protocol.flow.records import FlowRow, VersionRow
from ...protocol.values import shown
from ..channel import Reply
from ..executors.functions import FunctionCalls
from ..jobs import Jobs
from ..journal.journal import Journal
from ..workers.dispatch import Dispatch
from .catalog import Catalog, Resolve

_GRAPHS_KEPT = 256


class Graphs:
    """A cache of the graphs of versions. Published versions never change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._graphs: OrderedDict[str, Graph] = OrderedDict()

    async def get(self, version: str) -> Graph:
        """The graph of a version."""
        graph = self._graphs.get(version)
        if graph is None:
            row = await self._store.version(version)
            if row is None:
                raise NotFound(f"flow version {shown(version)} not found", value=version)
            graph = self._graphs[version] = read_graph(row.definition)
            if len(self._graphs) > _GRAPHS_KEPT:
                self._graphs.popitem(last=False)
        else:
            self._graphs.move_to_end(version)
        return graph


class FlowServices(msgspec.Struct):
    """See the module's docstring. `functions`: functions are called in executors; without it, here."""

    graphs: Graphs
    catalog: Catalog
    dispatch: Dispatch
    jobs: Jobs
    journal: Journal
    allow_scripts: bool
    functions: FunctionCalls | None = None

    async def graph(self, version: str) -> Graph:
        """The graph of a version, for a walk; waits while the store is down."""
        return await self.journal.read(partial(self.graphs.get, version))

    async def resolve(self, flow: str, version: int) -> tuple[FlowRow, VersionRow]:
        """Find a flow and a version of it; version 0 is the latest published one."""
        reply: Reply[tuple[FlowRow, VersionRow]] = Reply()
        self.catalog.tell(Resolve(flow, version, reply))
        return await reply.get()
