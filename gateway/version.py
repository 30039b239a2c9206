"""What the gateway calls itself."""

from importlib.metadata import version

SERVER = f"greenroom/{version('greenroom')}"
