"""`greenroom config`: check the configuration of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from ..config.mistakes import ConfigMistakes
from ..config.reading import SETTINGS, Read, check_together, read_config
from ..config.secrets import webhook_risks
from ..config.settings import Config
from ..persistence.addresses import parse_addresses
from .exits import Exit, Stopped, report_errors

file_option = click.option(
    "--config",
    "file",
    metavar="FILE",
    envvar="GREENROOM_CONFIG",
    show_envvar=True,
    help="The configuration file. [default: greenroom.toml in the current folder, if it exists]",
)


def configured() -> Config:
    """The configuration, for defaults of options."""
    try:
        return read_config().config
    except ConfigMistakes as error:
        raise Stopped(error.message, Exit.NOT_UNDERSTOOD) from error


@click.group()
def config() -> None:
    """Check the configuration: greenroom.toml, GREENROOM_… variables and flags.

    \b
    Examples:
      greenroom config check
      greenroom config check --config /etc/greenroom.toml
    """


@config.command()
@file_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the errors, or the settings.")
@report_errors
def check(file: str | None, as_json: bool) -> None:
    """Check the configuration, and show all errors with their locations.

    Without an error, it shows the settings that are not defaults, with the origin of each. It also checks
    that configured files exist, and imports the jobs. Exits with code 2 if there is an error.

    \b
    Examples:
      greenroom config check && systemctl reload greenroom
      greenroom config check --config /etc/greenroom.toml --json
    """
    try:
        read = read_config(file)
        check_together(read)
    except ConfigMistakes as error:
        if as_json:
            mistakes = [{"where": m.origin, "setting": m.path, "text": m.text} for m in error.mistakes]
            click.echo(json.dumps({"ok": False, "mistakes": mistakes}))
        count = len(error.mistakes)
        word = "error" if count == 1 else "errors"
        raise Stopped(f"{count} {word} in the configuration:\n{error.message}", Exit.NOT_UNDERSTOOD) from None
    for warning in (*read.warnings, *webhook_risks(read.config.engine)):
        click.echo(f"Warning: {warning}", err=True)
    settings = dict(_set(read))
    if as_json:
        click.echo(
            json.dumps({"ok": True, "settings": {name: shown for name, (shown, _) in settings.items()}})
        )
        return
    for name, (shown, origin) in settings.items():
        click.echo(f"{name} = {shown}  ({origin})")
    click.echo("The configuration is valid.")


def _set(read: Read) -> Iterator[tuple[str, tuple[Any, str]]]:
    """The configured settings, with their values (without passwords) and their origins."""
    for path in SETTINGS:
        value: Any = read.written.values
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            shown = _without_passwords(value) if path == ("engine", "store") else value
            if path == ("engine", "webhook_secret"):
                shown = "(hidden)"
            yield ".".join(path), (shown, read.written.origin(path))


def _without_passwords(store: str | list[str]) -> str:
    return store if store == "memory:" else ", ".join(map(str, parse_addresses(store)))
