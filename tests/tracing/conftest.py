"""Every test here can look at its spans."""

from .spans import spans

__all__ = ["spans"]
