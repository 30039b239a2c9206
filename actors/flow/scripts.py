"""Scripts: programs on this machine, if the operator allows them. They receive arguments, never a shell.

A program can read its input as JSON from stdin. Its stdout is the output: a string, or the JSON value that it
contains.
"""

from __future__ import annotations

import subprocess
from typing import Any

import msgspec
import trio

from ...protocol.flow.model import Script

_MAX_STDERR = 1000


async def run_script(script: Script, given: Any, max_bytes: int) -> Any:
    """Run a script to its end, or kill it when cancelled. Raises `OSError` if it cannot be run or fails."""
    output: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(_start, [script.cmd, *script.args])
        assert process.stdin is not None, "it was started with pipes"
        assert process.stdout is not None, "it was started with pipes"
        assert process.stderr is not None, "it was started with pipes"
        nursery.start_soon(_read, process.stdout, output["stdout"], max_bytes, process)
        nursery.start_soon(_read, process.stderr, output["stderr"], max_bytes, process)
        stdin = msgspec.json.encode(given) if script.stdin_mode == "json" else b""
        nursery.start_soon(_write, process.stdin, stdin)
    if len(output["stdout"]) > max_bytes:
        raise OSError(f"{script.cmd} printed more than {max_bytes:,} bytes and was killed")
    if process.returncode:
        stderr = bytes(output["stderr"][-_MAX_STDERR:]).decode(errors="backslashreplace").strip()
        raise OSError(f"{script.cmd} exited with code {process.returncode}: {stderr}")
    if script.output_mode == "json":
        try:
            return msgspec.json.decode(output["stdout"])
        except msgspec.DecodeError:
            pass  # the output is plain text
    return output["stdout"].decode(errors="backslashreplace").rstrip("\n")


async def _start(arguments: list[str], task_status: trio.TaskStatus[trio.Process]) -> None:
    await trio.run_process(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
        task_status=task_status,
    )


async def _read(
    stream: trio.abc.ReceiveStream, output: bytearray, max_bytes: int, process: trio.Process
) -> None:
    async with stream:
        async for chunk in stream:
            output += chunk
            if len(output) > max_bytes:
                process.kill()
                return


async def _write(stream: trio.abc.SendStream, text: bytes) -> None:
    async with stream:
        try:
            await stream.send_all(text)
        except trio.BrokenResourceError:
            return  # the program closed its stdin
