"""Scripts: programs on this machine, where the operator allows them. They get arguments, and never a shell.

A program may read its input as JSON from stdin. What it prints is the output: a text, or JSON where it can be
read as that.
"""

from __future__ import annotations

import subprocess
from typing import Any

import msgspec
import trio

from ...protocol.flow.model import Script

_LONGEST_COMPLAINT = 1000


async def run_script(script: Script, given: Any, max_bytes: int) -> Any:
    """Run it to its end, or kill it. Raises `OSError` for one that can't be run, or fails."""
    said: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(_start, [script.cmd, *script.args])
        assert process.stdin is not None, "it was started with pipes"
        assert process.stdout is not None, "it was started with pipes"
        assert process.stderr is not None, "it was started with pipes"
        nursery.start_soon(_listen, process.stdout, said["stdout"], max_bytes, process)
        nursery.start_soon(_listen, process.stderr, said["stderr"], max_bytes, process)
        told = msgspec.json.encode(given) if script.stdin_mode == "json" else b""
        nursery.start_soon(_tell, process.stdin, told)
    if len(said["stdout"]) > max_bytes:
        raise OSError(f"{script.cmd} printed more than {max_bytes:,} bytes, and was ended")
    if process.returncode:
        complaint = bytes(said["stderr"][-_LONGEST_COMPLAINT:]).decode(errors="backslashreplace").strip()
        raise OSError(f"{script.cmd} ended with {process.returncode}: {complaint}")
    if script.output_mode == "json":
        try:
            return msgspec.json.decode(said["stdout"])
        except msgspec.DecodeError:
            pass  # it is a text, then
    return said["stdout"].decode(errors="backslashreplace").rstrip("\n")


async def _start(arguments: list[str], task_status: trio.TaskStatus[trio.Process]) -> None:
    await trio.run_process(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
        task_status=task_status,
    )


async def _listen(
    stream: trio.abc.ReceiveStream, said: bytearray, max_bytes: int, process: trio.Process
) -> None:
    async with stream:
        async for chunk in stream:
            said += chunk
            if len(said) > max_bytes:
                process.kill()
                return


async def _tell(stream: trio.abc.SendStream, text: bytes) -> None:
    async with stream:
        try:
            await stream.send_all(text)
        except trio.BrokenResourceError:
            return  # it doesn't want to know more
