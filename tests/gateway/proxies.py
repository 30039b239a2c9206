"""nginx and HAProxy in front of a gateway, or of the nodes of a cluster, with the configuration that the
pages in docs/how-to show. Only addresses, names of files, and times differ."""

from __future__ import annotations

import random
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import attrs
import pytest
import trio

from tests.servers import make_certificate

_PAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "how-to"
_PATIENCE = 60.0
_TRIES = 3

NAMES = ("nginx", "haproxy")


@attrs.frozen
class Proxy:
    """A running proxy: its address, and the certificate that its clients trust."""

    port: int
    tls: ssl.SSLContext

    async def connect(self) -> trio.SSLStream[trio.SocketStream]:
        """A connection over TLS."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        encrypted = trio.SSLStream(stream, self.tls, server_hostname="runs.example", https_compatible=True)
        try:
            await encrypted.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return encrypted


def shown(language: str, page: str = "operating.md") -> list[str]:
    """The code blocks of a page in this language."""
    return re.findall(rf"```{language}\n(.*?)```", (_PAGES / page).read_text(encoding="utf-8"), re.DOTALL)


@asynccontextmanager
async def proxied(name: str, gateway: int, folder: Path, **times: str) -> AsyncIterator[Proxy]:
    """A proxy for the gateway at this port. `times` replaces times of the documented configuration."""
    text = "".join(shown("haproxy"))
    if name == "nginx":
        server, location = shown("nginx")
        head, brace, _ = server.rstrip().rpartition("}")
        assert brace, "it ends with the server's brace"
        text = f"{head}{location}}}"  # the second block is a part of the first one's server
    async with started(name, text, {"127.0.0.1:8440": f"127.0.0.1:{gateway}", **times}, folder) as proxy:
        yield proxy


@asynccontextmanager
async def started(name: str, text: str, given: Mapping[str, str], folder: Path) -> AsyncIterator[Proxy]:
    """A proxy with the documented configuration `text`, in which the keys of `given` are replaced."""
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if program is None:
        pytest.skip(f"{name} is not installed")
    certificate, key = make_certificate(folder, "runs.example")
    (folder / "both.pem").write_bytes(certificate.read_bytes() + key.read_bytes())
    tls = ssl.create_default_context(cafile=str(certificate))
    if name == "nginx":
        text = _nginx(text, folder)
    for _ in range(_TRIES):
        proxy = Proxy(_port(), tls)
        replaced = {
            "listen 443": f"listen 127.0.0.1:{proxy.port}",
            "bind :443": f"bind 127.0.0.1:{proxy.port}",
            "/etc/ssl/runs.example.pem": str(certificate),
            "/etc/ssl/runs.example.key": str(key),
            "/etc/haproxy/runs.example.pem": str(folder / "both.pem"),
            **given,
        }
        written = text
        for old, new in replaced.items():
            written = written.replace(old, new)
        file = folder / f"{name}.conf"
        file.write_text(written)
        command = [program, *(("-p", str(folder), "-c") if name == "nginx" else ("-db", "-f")), str(file)]
        with (folder / "log").open("wb") as log:
            process = await trio.lowlevel.open_process(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            if await _has_begun(proxy, process):
                yield proxy
                return
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
    pytest.fail(f"{name} did not begin: {(folder / 'log').read_text()}")


def _nginx(text: str, folder: Path) -> str:
    """A complete file with these blocks."""
    kept = "\n".join(
        f"    {what}_temp_path {folder}/{what};"
        for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr warn;\nevents {{}}\n"
        f"http {{\n    access_log off;\n{kept}\n{text}\n}}\n"
    )


async def _has_begun(proxy: Proxy, process: trio.Process) -> bool:
    """Whether it answers with its certificate before it ends. Another program may have got the port."""
    with trio.move_on_after(_PATIENCE):
        while process.poll() is None:
            try:
                stream = await proxy.connect()
            except OSError:
                await trio.sleep(0.02)
                continue
            except trio.BrokenResourceError:
                return False
            await trio.aclose_forcefully(stream)
            return True
    return False


def _port() -> int:
    """A port that is free now, outside the range for outgoing connections."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            return int(probe.getsockname()[1])
