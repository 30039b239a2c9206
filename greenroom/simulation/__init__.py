"""Simulation: whole engines, every race and every crash, from one seed."""

from .simulate import Simulated, SimulationFailed, simulate
from .world import Step, World

__all__ = ["Simulated", "SimulationFailed", "Step", "World", "simulate"]
