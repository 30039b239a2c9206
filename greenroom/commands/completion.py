"""`greenroom completion`: the script with which a shell completes commands, options and their choices."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "greenroom"
_VARIABLE = "_GREENROOM_COMPLETE"
"""The variable by which the script requests completions; Click derives it from the program's name."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands, options and choices.

    The script calls `greenroom` itself, so it stays valid after an upgrade. bash 4.4 or newer is required.

    \b
    Examples:
      greenroom completion bash > ~/.local/share/bash-completion/completions/greenroom
      greenroom completion zsh > ~/.zfunc/_greenroom     # with ~/.zfunc in $fpath, before compinit
      greenroom completion fish > ~/.config/fish/completions/greenroom.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "each choice is a shell that Click knows"
    click.echo(kind(context.find_root().command, {}, PROGRAM, _VARIABLE).source())
