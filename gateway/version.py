"""The server's name and version, for `welcome` and HTTP."""

from importlib.metadata import version

SERVER = f"greenroom/{version('greenroom')}"
