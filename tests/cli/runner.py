"""How tests call the command line in their own process."""

from inspect import signature

from click.testing import CliRunner


def runner() -> CliRunner:
    """Click's runner, with standard error apart, which 8.1 does only on request."""
    return CliRunner(**({"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}))
