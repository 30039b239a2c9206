"""The command line: `greenroom`, or `python -m greenroom`. The commands are in `greenroom/commands/`.

A command's module is imported only when the command is called, so that a command such as `greenroom runs`
starts without the slow imports of `greenroom serve`.
"""

from __future__ import annotations

import click

from .commands.lazy import LazyCommand

_COMMANDS = {
    "demo": {"demo": "Run a demo: mirror accounts from a small site, with conflicts and cancels."},
    "serve": {"serve": "Run a server: an engine with your jobs, and its gateway."},
    "executor": {"executor": "Run an executor, which executes bodies for a server."},
    "worker": {"worker": "Run a worker, which executes nodes of flows for a server."},
    "config": {"config": "Check the configuration: greenroom.toml, GREENROOM_… variables and flags."},
    "tokens": {"token": "Manage tokens, their roles and their limits."},
    "db": {"db": "Manage the store: upgrade, check, prune and back up."},
    "simulate": {"simulate": "Run a deterministic simulation of an engine from a seed."},
    "submit": {"submit": "Submit a run of JOB, and print its id."},
    "submit_many": {"submit-many": "Submit the runs in FILE together, and print their ids in order."},
    "runs": {
        "watch": "Follow all runs, or one run until it ends.",
        "runs": "List the runs that match all filters, newest first.",
        "show": "Show a run: its state, its open interrupts, and with --history its events.",
    },
    "control": {
        "cancel": "Cancel a run, or all pending runs that match.",
        "inject": "Send a message to the body of a run.",
        "priority": "Change the priority of a run that has not started: higher ones are first.",
        "answer": "Answer an open interrupt.",
    },
    "again": {
        "rerun": "Submit a run again, or all ended runs that match.",
        "retry": "Submit a run again that failed, or all that failed and match.",
    },
    "lanes": {"lanes": "Manage lanes: their limits and rules."},
    "jobs": {"jobs": "List the jobs that can be submitted, with their lanes and parameters."},
    "handles": {"handles": "Manage handles: the accounts, sessions or devices whose runs never overlap."},
    "schedules": {"schedules": "Manage schedules: runs that the engine submits at due times."},
    "webhooks": {"webhooks": "List, redeliver or drop webhooks that could not deliver an event."},
    "flow.group": {"flow": "Manage and run flows, graphs of nodes that workers execute."},
    "workers": {"workers": "List the workers, which execute nodes of flows."},
    "executors": {"executors": "List the executors, the processes that execute bodies, or drain one."},
    "cluster": {"cluster": "Show the nodes of a cluster, or let its leader step down."},
    "engine": {
        "state": "Show the state of the engine, its executors, its active runs and its open interrupts.",
        "drain": "Refuse and start no new runs until `greenroom resume`; executing runs continue.",
        "resume": "Accept and start runs again after `greenroom drain`.",
    },
    "completion": {
        "completion": "Print the script with which SHELL completes commands, options and choices."
    },
}
"""The commands in each module of `greenroom/commands/`, with the first sentence of their help."""


@click.group(
    commands=LazyCommand.each(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="greenroom")
def main() -> None:
    """Greenroom: an actor-model run engine on trio."""
