"""A new user who is not root, with an empty home directory, and only Python and git."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 300
_NOBODY = 65534
_KEPT = (
    "PIP_",
    "SSL_",
    "NODE_",
    "npm_config_",
    "REQUESTS_CA",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)


class Newcomer:
    """Runs commands in a shell, in the directory `home`. As root, they run as the user `nobody`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = _free_port()
        self._user = _NOBODY if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(home, self._user, self._user)
        # git refuses to clone the repository of another user unless this is configured.
        (home / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
        self.environment = {
            **{name: value for name, value in os.environ.items() if name.startswith(_KEPT)},
            "HOME": str(home),
            "TMPDIR": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "PATH": "/usr/local/bin:/usr/bin:/bin" if self._user is not None else os.environ["PATH"],
            "GREENROOM_GATEWAY_PORT": str(self.port),
            "GREENROOM_URL": f"http://127.0.0.1:{self.port}",
        }

    def as_here(self, text: str) -> str:
        """A text of the documentation with the repository and the port of this test."""
        return text.replace("REPOSITORY", f"file://{ROOT}").replace("8440", str(self.port))

    def run(self, command: str, *, cwd: Path | None = None, code: int = 0) -> str:
        """Run a command to its end; returns its output. Fails unless it exits with `code`."""
        with self.started(command, cwd=cwd) as started:
            text = started.read_to_end()
        found = started.process.returncode
        assert found == code, f"$ {command}\nexit code {found}\n{text}"
        return text

    def install(self, extras: str = "") -> None:
        """`pip install .` in an empty environment, whose commands are found from here on."""
        self.run("git clone REPOSITORY checkout && python3 -m venv env")
        self.run(f"cd checkout && ../env/bin/pip install '.{extras}'")
        self.environment["PATH"] = f"{self.home / 'env' / 'bin'}:{self.environment['PATH']}"

    @contextmanager
    def started(self, command: str, *, cwd: Path | None = None) -> Iterator[Started]:
        """A command in its own terminal; interrupted at the end if it still runs."""
        ours, theirs = os.openpty()
        process = subprocess.Popen(
            ["bash", "-c", self.as_here(command)],
            cwd=cwd or self.home,
            env=self.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            user=self._user,
            group=self._user,
            extra_groups=None if self._user is None else [],
            start_new_session=True,
        )
        os.close(theirs)
        started = Started(command, process, ours)
        try:
            yield started
        finally:
            started.stop()
            os.close(ours)


class Started:
    """A command that runs in a terminal."""

    def __init__(self, command: str, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._command = command
        self._terminal = terminal
        self._written = b""

    @property
    def text(self) -> str:
        """Its output so far, without control sequences for cursor and colours."""
        plain = re.sub(rb"\x1b(\[[0-9;?]*[A-Za-z]|[=>])", b"", self._written)
        lines = plain.decode(errors="replace").replace("\r\n", "\n").split("\n")
        return "\n".join(line.rpartition("\r")[2] for line in lines)  # without overwritten text

    def wait_for(self, pattern: str) -> None:
        """Read until its output matches."""
        self._read(lambda: re.search(pattern, self.text) is not None)
        assert re.search(pattern, self.text), f"$ {self._command}\nno {pattern!r} in:\n{self.text}"

    def type(self, keys: str) -> None:
        """Press keys in its terminal."""
        os.write(self._terminal, keys.encode())

    def read_to_end(self) -> str:
        """Read until it has ended."""
        self._read(lambda: False)
        self.process.wait(PATIENCE)
        return self.text

    def stop(self) -> None:
        """Interrupt it as Ctrl-C does, if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(PATIENCE)

    def _read(self, enough: object) -> None:
        assert callable(enough)
        until = time.monotonic() + PATIENCE
        while not enough() and time.monotonic() < until:
            if not select.select([self._terminal], [], [], 0.5)[0]:
                if self.process.poll() is not None:
                    return
                continue
            try:
                read = os.read(self._terminal, 65_536)
            except OSError:  # the other end is closed
                return
            self._written += read


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a language in a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[str]:
    """The commands of a page, without comments; a line that ends with a backslash continues."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", "").splitlines()
    return [re.sub(r"\s+#.*", "", line).strip() for line in lines if line.strip()]


def in_a_function(block: str) -> str:
    """A program of a block that uses `async with` at its top."""
    imports, _, body = block.partition("\n\n")
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    return f"import trio\n{imports}\n\nasync def main():\n{indented}\ntrio.run(main)\n"


def has_tools() -> bool:
    """Whether another user than root can use Python and git."""
    if shutil.which("git") is None:
        return False
    if os.geteuid() != 0:
        return True
    check = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"
    found = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    return found is not None and subprocess.run([found, "-c", check], check=False).returncode == 0


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
