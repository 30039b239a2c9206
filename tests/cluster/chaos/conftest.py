"""Fixtures for clusters of processes."""

from __future__ import annotations

from tests.servers import mariadb, postgresql

__all__ = ["mariadb", "postgresql"]
