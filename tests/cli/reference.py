"""The page about the command line, generated from the commands.

`python -m tests.cli.reference` writes it; a test checks that it is current.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from greenroom.cli import LazyCommand, main
from greenroom.commands.exits import Exit

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "cli.md"

_HEAD = """# Command line

The command is `greenroom`, or `python -m greenroom`. This page is generated from the output of `--help`.

Commands for a running server have the option `--url` (or `GREENROOM_URL`), by default
`http://127.0.0.1:8440`. For a cluster it can list several nodes, separated by commas; the commands use one
that works ([Clients](../how-to/clients.md#several-addresses)). `greenroom worker` and `greenroom executor`
take one URL. A token is read from a file, `--token-file` (or `GREENROOM_TOKEN_FILE`), or from the variable
`GREENROOM_TOKEN`; an empty variable counts as not set. There is no option for the token itself, because all
users of the machine can read arguments. For `https` the commands trust the system's certificates, or those in
the file `SSL_CERT_FILE`.

With `--json` a command prints one JSON value per line: runs and events as on the wire. Without it, a terminal
shows coloured text, cut to the terminal's width; other outputs are plain and not cut. An error is printed on
standard error as one sentence; with `--json` as an object with the `code`, `message` and `details` of the
[error](errors.md). If there is no such error, `code` is the name of the exit code.

```json
{"code":"conflict","message":"handle \\"alice\\" is taken by run 01a1…: …","details":{"active_run":"01a1…"}}
```
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD, "## Exit codes\n", _table(("code", "name", "meaning"), _codes())]
    parts.append("After a second signal, `greenroom serve` exits with code 128 plus the signal's number.\n")
    parts += [_chapter(names, command) for names, command in commands(main)]
    return "\n".join(parts)


def commands(
    group: click.Group, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its name; a group precedes its commands."""
    for name, listed in group.commands.items():
        command = listed.load() if isinstance(listed, LazyCommand) else listed
        yield (*above, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))


def _codes() -> Iterator[tuple[str, ...]]:
    texts = re.findall(r'= (\d+)\n    """(.*?)"""', inspect.getsource(Exit), re.DOTALL)
    assert [int(code) for code, _ in texts] == [*Exit]
    for code, text in texts:
        yield code, f"`{Exit(int(code)).name.lower()}`", text


def _chapter(names: tuple[str, ...], command: click.Command) -> str:
    arguments = [
        param.make_metavar(click.Context(command)) for param in command.params if _is_argument(param)
    ]
    title = " ".join(["greenroom", *names])
    usage = " ".join([title, *arguments])
    help = inspect.cleandoc(command.help or "")
    text, _, examples = help.partition("\b\n")
    parts = [f"{'##' if len(names) == 1 else '###'} {title}\n"]
    if not isinstance(command, click.Group) or command.invoke_without_command:
        parts.append(f"`{usage} [OPTIONS]`\n")
    parts.append(f"{text.strip()}\n")
    options = [param for param in command.params if isinstance(param, click.Option)]
    if options:
        parts.append(_table(("option", "description"), map(_option, options)))
    lines = [line.strip() for line in examples.splitlines()[1:]]
    parts.append("\n".join(["```sh", *lines, "```\n"]))
    return "\n".join(parts)


def _is_argument(param: click.Parameter) -> bool:
    return isinstance(param, click.Argument)


def _option(option: click.Option) -> tuple[str, str]:
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(click.Command('x')))}"
    spellings = ", ".join(f"`{name}{value}`" for name in option.opts)
    if option.secondary_opts:  # the opposite flag, as in `--paused / --active`
        spellings += " / " + ", ".join(f"`{name}`" for name in option.secondary_opts)
    help = option.help or ""
    if option.show_default and option.default not in (None, False):
        help += f" Default: `{option.default}`."
    if option.show_envvar:
        names = [option.envvar] if isinstance(option.envvar, str) else option.envvar or ()
        help += f" Variable: {' or '.join(f'`{name}`' for name in names)}."
    return spellings, help.strip()


def _table(header: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
