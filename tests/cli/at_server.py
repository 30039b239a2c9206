"""The command line at a real server of the same process, for tests of webhooks."""

from __future__ import annotations

import trio
from click.testing import Result

from greenroom.cli import main

from .runner import runner


class Silent:
    """A receiver that does not respond, so that the engine changes nothing during the test."""

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        await trio.sleep_forever()
        raise AssertionError


async def greenroom(*arguments: str, code: int = 0) -> Result:
    result = await trio.to_thread.run_sync(runner().invoke, main, arguments)
    assert result.exit_code == code, result.output
    return result
