"""The group `greenroom flow`."""

from __future__ import annotations

import click

from ..lazy import LazyCommand

_COMMANDS = {
    "flow.files": {
        "check": "Check a flow definition, and show all errors with their locations.",
        "graph": "Print a flow as a Mermaid flowchart.",
        "publish": "Publish a definition as the next version of a flow.",
    },
    "flow.runs": {
        "run": "Run a flow, and print the id of its run.",
        "list": "List the flows, with the latest version of each.",
        "show": "Show a run of a flow: its current node, its shared data and its node runs.",
        "signal": "Set a value in a run's shared data; a node that waits for it continues.",
    },
    "flow.demo": {"demo": "Run a demo of flows: two runs take the two branches of a choice."},
}
"""The commands in each module, with the first sentence of their help."""


@click.group(commands=LazyCommand.each(_COMMANDS))
def flow() -> None:
    """Manage and run flows, graphs of nodes that workers execute.

    \b
    Examples:
      greenroom flow check order.yaml
      greenroom flow publish order.yaml
      greenroom flow run order -p '{"amount": 120}' --watch
      greenroom flow demo
    """
