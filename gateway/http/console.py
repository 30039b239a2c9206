"""The web console: its page, which every address of a view returns, and the files that the page loads.

They need no token, since they are the same everywhere; what the page shows comes from the API, which asks
for one. All files are served below a path that contains a hash of all of them, so browsers can keep them for
ever, and a page never mixes files of two versions. Links are relative, so that the console also works behind
a proxy that adds a prefix. Everything is read and compressed once, and kept in memory; the modules without
the comments in front of their parts, which are a tenth of what a browser would load.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from email.utils import formatdate
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from ipaddress import ip_address
from urllib.parse import urlsplit

import attrs
import trio

from .head import Request
from .responses import Response

VIEWS = (
    *("runs", "handles", "flows", "interrupts", "schedules"),
    *("executors", "workers", "webhooks", "events", "settings"),
)
"""The first parts of the addresses of views; `/` is the overview."""
FOLDER = "console"

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PAGE = "app/index.html"
_LOST = "app/lost.html"
LATER = ("app/views/flows/", "app/parts/editor.js", "app/parts/panzoom.js")
"""The modules that are loaded when they are first needed, by the beginnings of their names."""
_VENDOR = "vendor/"
_COMMENT = re.compile(rb"^[ \t]*/\*\*(?:(?!\*/).)*\*/[ \t]*$", re.MULTILINE | re.DOTALL)
_USED_BY_ALL = ("vendor/ui.js", "greenroom.js")
_DEEPEST = 3
"""The parts of the longest address of a view."""

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # no text can become markup, whatever a library does
        "trusted-types 'none'",
    )
)
_OF_PAGE = (
    ("Cache-Control", "no-cache"),
    ("Content-Security-Policy", _POLICY),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
)
_OF_TRUSTWORTHY = (("Cross-Origin-Opener-Policy", "same-origin"),)
"""For pages over HTTPS, or from the machine of the browser. Elsewhere, browsers report it as an error."""
_OF_FILE = (("Cache-Control", "public, max-age=31536000, immutable"),)


@attrs.frozen
class File:
    """A file, as it is and compressed."""

    body: bytes
    compressed: bytes
    content_type: str
    tag: str

    @classmethod
    def of(cls, body: bytes, name: str) -> File:
        """The file of this name."""
        tag = hashlib.sha256(body).hexdigest()[:32]
        kind = _TYPES[name[name.rindex(".") :]]
        return cls(body, gzip.compress(body, 9, mtime=0), kind, tag)


def is_address(segments: tuple[str, ...]) -> bool:
    """Whether this is the address of a view, or of a file of the console."""
    return segments == ("",) or segments[0] == FOLDER or (segments[0] in VIEWS and len(segments) <= _DEEPEST)


def is_visited(request: Request) -> bool:
    """Whether a person opens the address of a view. Some of these addresses are also calls of the task API,
    whose clients do not ask for HTML."""
    return asks_for_page(request) and is_address(request.segments)


def asks_for_page(request: Request) -> bool:
    """Whether a person opens an address. Browsers send `Sec-Fetch-Mode` over HTTPS, and to this machine."""
    mode = request.header("sec-fetch-mode") or "navigate"
    kinds = {kind.partition(";")[0].strip() for kind in request.tokens("accept")}
    return request.method in ("GET", "HEAD") and mode == "navigate" and "text/html" in kinds


def find(segments: tuple[str, ...]) -> File | None:
    """What is at such an address. Call `load` first."""
    if segments[0] != FOLDER:
        return _page(len(segments) - 1)
    if segments[1:2] != (version(),):
        return None
    return _files().get("/".join(segments[2:]))


async def load() -> None:
    """Read and compress the files, if that has not happened yet."""
    if not version.cache_info().currsize:
        await trio.to_thread.run_sync(version)


def response(found: File, request: Request) -> Response:
    """The page or a file, compressed if the client accepts that; or 304 for a client that has it already."""
    is_page = request.segments[0] != FOLDER
    packs = _accepts_gzip(request)
    tag = f'"{found.tag}{"-gzip" if packs else ""}"'
    varies = "Accept, Accept-Encoding, Sec-Fetch-Mode" if is_page else "Accept-Encoding"
    headers = (*(_of_page(request) if is_page else _OF_FILE), ("ETag", tag), ("Vary", varies))
    known = {name.removeprefix("W/") for name in request.tokens("if-none-match")}
    if known & {tag, "*"}:
        return Response(304, headers=headers)
    if packs:
        encoded = (*headers, ("Content-Encoding", "gzip"))
        return Response(200, found.compressed, found.content_type, encoded)
    return Response(200, found.body, found.content_type, headers)


def lost(request: Request) -> Response:
    """What a person sees at an address that has nothing. Call `load` first."""
    text = _linked(_files()[_LOST].body.decode(), len(request.segments) - 1)
    headers = (*_of_page(request), ("Vary", "Accept, Sec-Fetch-Mode"))
    return Response(404, text.encode(), _TYPES[".html"], headers)


def _of_page(request: Request) -> tuple[tuple[str, str], ...]:
    """The headers of the page. The page reads the time of the server from `Date`."""
    is_secure = (request.header("x-forwarded-proto") or "").lower() == "https"
    is_trusted = is_secure or _is_local(request.header("host") or "")
    return (*_OF_PAGE, *(_OF_TRUSTWORTHY if is_trusted else ()), ("Date", formatdate(usegmt=True)))


def _is_local(host: str) -> bool:
    """Whether this `Host` is the machine of the browser."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or ip_address(name).is_loopback
    except ValueError:
        return False


@cache
def version() -> str:
    """The hash of all files."""
    whole = hashlib.sha256()
    for name, file in sorted(_files().items()):
        whole.update(f"{name}\n{file.tag}\n".encode())
    return whole.hexdigest()[:16]


@cache
def _files() -> dict[str, File]:
    folder = files("greenroom.gateway").joinpath("console")
    return {name: File.of(_served(found.read_bytes(), name), name) for name, found in _found(folder, "")}


def _served(content: bytes, name: str) -> bytes:
    """The content that browsers get: that of a module without comments on lines of their own. The other lines
    keep their numbers."""
    if not name.endswith(".js") or name.startswith(_VENDOR):
        return content
    return _COMMENT.sub(lambda comment: b"\n" * comment[0].count(b"\n"), content)


def _found(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        name = f"{path}{entry.name}"
        if entry.is_dir():
            yield from _found(entry, f"{name}/")
        elif entry.name.endswith(tuple(_TYPES)):
            yield name, entry


@cache
def _page(depth: int) -> File:
    """The page at an address with this many slashes after the first one."""
    text = _files()[_PAGE].body.decode().replace("{modules}", _preloads())
    return File.of(_linked(text, depth).encode(), _PAGE)


def _linked(text: str, depth: int) -> str:
    """The text of a page at an address with this many slashes after the first one, with its links."""
    root = "../" * depth or "./"
    return text.replace("{files}", f"{root}{FOLDER}/{version()}").replace("{root}", root)


def _preloads() -> str:
    """The links by which browsers load all modules at once, instead of one after another as they are
    imported. Large libraries and `LATER` are not among them: the views that need them load them."""
    modules = [
        name
        for name in sorted(_files())
        if name.startswith("app/") and name.endswith(".js") and not name.startswith(LATER)
    ]
    names = [*_USED_BY_ALL, *modules]
    return "\n    ".join(f'<link rel="modulepreload" href="{{files}}/{name}">' for name in names)


def _accepts_gzip(request: Request) -> bool:
    weights = {"*": 0.0}
    for item in request.tokens("accept-encoding"):
        coding, *parameters = item.replace(" ", "").replace("\t", "").lower().split(";")
        pairs = dict(one.partition("=")[::2] for one in parameters)
        weights[coding] = _weight(pairs.get("q", "1"))
    return weights.get("gzip", weights["*"]) > 0


def _weight(text: str) -> float:
    """A weight of a coding; what is not a number counts as 0, so the client gets what all can read."""
    try:
        return float(text)
    except ValueError:
        return 0.0
