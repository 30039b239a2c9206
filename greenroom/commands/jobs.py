"""`greenroom jobs`: list the jobs."""

from __future__ import annotations

from typing import Any

import click

from .connection import Server, for_server
from .output import echo_json, table


@click.command()
@for_server
def jobs(server: Server) -> None:
    """List the jobs that can be submitted, with their lanes and parameters.

    A parameter with `?` can be omitted. `any` means that the type of the parameters names no fields. With
    --json, `params` is the JSON Schema of the parameters. `greenroom flow list` lists flows.

    \b
    Examples:
      greenroom jobs
      greenroom jobs --json | jq -r .name
      greenroom jobs --json | jq 'select(.name == "mirror").params'
    """
    found = server.ask(lambda client: client.list_jobs())
    if server.as_json:
        for job in found:
            echo_json(job)
        return
    table(("job", "lane", "parameters"), ((job.name, job.lane, _fields(job.params)) for job in found))


def _fields(schema: dict[str, Any] | None) -> str:
    """The names of the fields that a schema has at its top."""
    if schema is None:
        return "any"
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    top = schema.get("$defs", {}).get(name, schema)
    if "properties" not in top:
        return "any"
    required = top.get("required", ())
    return ", ".join(field if field in required else f"{field}?" for field in top["properties"])
