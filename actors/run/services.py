"""What run actors and bodies use of the engine or of the executor around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import trio

from ...persistence.files import Files
from ..actor import Delivery
from ..engine.entry_point import EntryPoint
from ..journal.journal import Journal

if TYPE_CHECKING:
    from ..aio.bodies import AsyncioBodies
    from ..executors.registry import Registry


class Surroundings(msgspec.Struct):
    """What a body uses of its own process."""

    files: Files
    asyncio_bodies: AsyncioBodies


class Services(msgspec.Struct):
    """The parts of the engine that the actors of runs use. `now` returns trio's time, and `random` a number
    from 0 to 1."""

    entry: EntryPoint
    journal: Journal
    files: Files
    wall_clock: Callable[[], float]
    delivery: Delivery
    surroundings: Surroundings
    executors: Registry
    random: Callable[[], float]
    now: Callable[[], float] = trio.current_time
