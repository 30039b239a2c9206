"""The JavaScript programs in the README and the documentation work as documented."""

from __future__ import annotations

import re
import urllib.request
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import trio

from greenroom import Jobs, Run, open_engine
from greenroom.gateway import GatewayConfig, open_gateway

from .javascript import PATIENCE, ROOT, needs_node, node

pytestmark = needs_node

ADDRESS = "ws://127.0.0.1:8440"


def make_jobs() -> Jobs:
    jobs = Jobs()

    @jobs.job("mirror")
    async def mirror(run: Run, params: dict[str, Any]) -> Any:
        return f"{params['url']} is mirrored"

    return jobs


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/clients.md"])
async def test_the_program_of_this_page_prints_the_result_of_its_run(page: str, tmp_path: Path):
    text = (ROOT / page).read_text(encoding="utf-8")
    [program] = re.findall(r"```js\n(.*?)```", text, re.DOTALL)
    assert ADDRESS in program
    async with (
        open_engine(make_jobs(), "memory:") as engine,
        open_gateway(engine, GatewayConfig(port=0)) as gateway,
    ):
        with await trio.to_thread.run_sync(urllib.request.urlopen, f"{gateway.url}/greenroom.js") as module:
            (tmp_path / "greenroom.js").write_bytes(module.read())
        url = gateway.url.replace("http", "ws")
        (tmp_path / "program.mjs").write_text(
            'const token = "not needed here";\n' + program.replace(ADDRESS, url), encoding="utf-8"
        )
        told = b""
        async with trio.open_nursery() as nursery:
            run = partial(
                trio.run_process, [str(node()), str(tmp_path / "program.mjs")], stdout=PIPE, check=False
            )
            process = await nursery.start(run)
            with trio.fail_after(PATIENCE):
                while b"\n" not in told:
                    more = await process.stdout.receive_some()
                    assert more, f"it has ended, and has printed only {told!r}"
                    told += more
                if "client.close()" in program:
                    assert await process.wait() == 0
            process.kill()
    assert told.startswith(b"https://example.org is mirrored\n")
