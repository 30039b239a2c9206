"""`greenroom submit-many`: submit the runs in a file together."""

from __future__ import annotations

from typing import IO, cast

import click
import msgspec

from ..gateway.client import Client
from ..protocol.batches import RunKeywords, Submitted
from ..protocol.codec import misfit
from ..protocol.decoding import with_known_fields
from ..protocol.errors import GreenroomError
from ..protocol.submission import NewRun, from_wire
from .connection import Server, for_server
from .exits import Exit, Stopped
from .output import decoded, echo


@click.command("submit-many")
@click.argument("file", type=click.File("rb"))
@click.option("--each", is_flag=True, help="Submit the other runs if some are refused.")
@for_server
def submit_many(server: Server, file: IO[bytes], each: bool) -> None:
    """Submit the runs in FILE together, and print their ids in order.

    FILE has one run per line, a JSON object: `job`, `handle`, and optionally `params` and the other fields of
    the command `submit`; - reads standard input. At most 10,000 runs are submitted together, and one commit
    creates them. If one is refused, none is submitted. With --each, only that one is refused, and the exit
    code is 1.

    \b
    Examples:
      greenroom submit-many runs.jsonl
      jq -c '.[] | {job: "mirror", handle: .name, params: {url}}' sites.json | greenroom submit-many -
    """
    lines = [(number, line) for number, line in enumerate(file, 1) if line.strip()]
    runs = [_run(number, line) for number, line in lines]

    async def talk(client: Client) -> None:
        try:
            outcomes = await client.submit_many(runs, all_or_nothing=not each)
        except GreenroomError as error:
            raise _in_line(error, lines) from None
        refused = 0
        for (number, _), outcome in zip(lines, outcomes, strict=True):
            if not isinstance(outcome, GreenroomError):
                echo(server.as_json, Submitted(outcome.id, outcome.joined), outcome.id)
                continue
            refused += 1
            if server.as_json:
                echo(True, Submitted.refused(outcome), "")
            else:
                click.echo(f"line {number}: {outcome.message}", err=True)
        if refused:
            raise Stopped(f"{refused} of {len(outcomes)} runs refused", Exit.FAILED)

    server.ask(talk)


def _run(number: int, line: bytes) -> RunKeywords:
    value = decoded(line, f"line {number}")
    try:
        new = msgspec.convert(value, NewRun)
    except msgspec.ValidationError as error:
        misfits = with_known_fields(misfit(error, "run"), NewRun)
        raise click.UsageError(f"line {number}: {misfits.message}") from None
    given = {"job": new.job, "handle": new.handle, "params": new.params, **from_wire(new)}
    return cast(RunKeywords, given)


def _in_line(error: GreenroomError, lines: list[tuple[int, bytes]]) -> GreenroomError:
    """The error that refuses all runs, with the number of the line instead of the index."""
    index = error.details.get("index")
    if not isinstance(index, int) or index >= len(lines):
        return error
    message = error.message.removeprefix(f"runs[{index}]: ")
    other = error.details.get("other_index")
    if isinstance(other, int) and other < len(lines):
        message = message.replace(f"runs[{other}]", f"line {lines[other][0]}")
    return type(error)(f"line {lines[index][0]}: {message}", **error.details)
