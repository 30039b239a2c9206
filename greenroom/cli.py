"""The command line: `greenroom`, or `python -m greenroom`. The commands stand in `greenroom/commands/`.

A command's module is imported when the command is called for, and not before: what `greenroom runs` needs is
soon there, what `greenroom serve` needs is not.
"""

from __future__ import annotations

import click

from .commands.lazy import LazyCommand

_COMMANDS = {
    "demo": {
        "demo": "Watch an engine at work: accounts are mirrored from a small site, and people interfere."
    },
    "serve": {"serve": "Run an engine with these jobs, and the gateway to it."},
    "worker": {"worker": "Do the work of flows' nodes for a server, with these services."},
    "config": {"config": "The configuration: greenroom.toml, GREENROOM_… variables and flags."},
    "tokens": {"token": "Tokens: who may use the server, and for what."},
    "db": {"db": "The store: its tables, what it keeps, its backup."},
    "simulate": {
        "simulate": "Play an engine in a simulated world, from a seed: the same seed gives the same story."
    },
    "submit": {"submit": "Submit a run of JOB, and print its id."},
    "runs": {
        "watch": "Watch everything, or one run until it ends.",
        "runs": "List runs, the newest first, also those that ended long ago.",
        "show": "Show a run: its state, its open interrupt, and with --history all that happened to it.",
    },
    "control": {
        "cancel": "Cancel a run: a queued one ends at once, an executing one when its body has ended.",
        "inject": "Give a message to the body of a run.",
        "answer": "Answer the interrupt of a body.",
    },
    "lanes": {"lanes": "Lanes: how many runs of a class of work execute at once."},
    "handles": {"handles": "Handles: the accounts, sessions or devices whose runs never overlap."},
    "flow.group": {"flow": "Flows: graphs of nodes that runs walk, and whose work workers do."},
    "workers": {"workers": "List the workers, which do the work of flows' nodes."},
    "engine": {
        "state": "Show how the engine is: what executes and waits, and what is asked.",
        "drain": "Take no new runs and start none, until `greenroom resume`; what executes goes on.",
        "resume": "Take and start runs again after `greenroom drain`.",
    },
    "completion": {
        "completion": "Print the script with which SHELL completes commands, options and choices."
    },
}
"""What is in each module of `greenroom/commands/`: the commands, and the first sentence of their help."""


@click.group(
    commands=LazyCommand.each(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="greenroom")
def main() -> None:
    """Greenroom: an actor-model run engine on trio."""
