"""How child processes log: as the process that starts them.

The server's settings apply to its children, too. Another program configures its log itself, also in a child,
if it does so when its jobs are imported.
"""

from __future__ import annotations

settings: dict[str, str] | None = None
"""The settings of the server's log, `None` for another program. Like the log itself, they concern the whole
process; `greenroom/logs.py` sets them."""
