"""`greenroom flow`: graphs of nodes that runs walk. Each command stands in a module of its own."""

from __future__ import annotations

import click

from ..lazy import LazyCommand

_COMMANDS = {
    "flow.files": {
        "check": "Check the definition of a flow, and show every mistake in it with its place.",
        "graph": "Draw a flow: the text of a Mermaid flowchart.",
        "publish": "Publish a definition as the next version of a flow.",
    },
    "flow.runs": {
        "run": "Run a flow, and print the id of its run.",
        "list": "List the flows, with the latest version of each.",
        "show": "Show a run of a flow: where it is, what its nodes share, and what each of them did.",
        "signal": "Put a value into what a run's nodes share; whoever waits for it goes on.",
    },
    "flow.demo": {"demo": "Watch flows at work: two tasks take the two branches of a choice."},
}
"""What is in each module: the commands, and the first sentence of their help."""


@click.group(commands=LazyCommand.each(_COMMANDS))
def flow() -> None:
    """Flows: graphs of nodes that runs walk, and whose work workers do.

    \b
    Examples:
      greenroom flow check order.yaml
      greenroom flow publish order.yaml
      greenroom flow run order -p '{"amount": 120}' --watch
      greenroom flow demo
    """
