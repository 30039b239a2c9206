"""Simulation: whole engines, every race and every crash, from one seed."""

from .search.hunting import Hunt, hunt
from .simulate import Simulated, SimulationFailed, simulate
from .world.world import Step, World

__all__ = ["Hunt", "Simulated", "SimulationFailed", "Step", "World", "hunt", "simulate"]
