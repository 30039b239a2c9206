"""Shells complete commands, options and choices with the script that `greenroom completion` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.cli import main
from tests.cli.runner import runner
from tests.cli.test_front import HEAVY, imported

BASH = """
source {script}
COMP_WORDS=({words} {last!r})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_greenroom_completion greenroom
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

# Completion is a part of zsh's line editor, which a script does not have: these functions replace it.
ZSH = """
compdef() {{ }}
compadd() {{ print -l -- ${{completions}} }}
_describe() {{ print -l -- ${{(P)3}} | sed 's/:.*//' }}
source {script}
words=({words} {last!r})
CURRENT=${{#words}}
_greenroom_completion
"""

FISH = """
source {script}
complete --do-complete {line!r} | string split --fields 1 \\t
true # `string split` fails where there is nothing to split
"""


def completed(shell: str, line: str, folder: Path) -> list[str]:
    """What the shell offers at the end of the line."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    script = folder / "script"
    done = runner().invoke(main, ["completion", shell])
    assert done.exit_code == 0, done.output
    script.write_text(done.output)
    *words, last = line.split(" ")
    text = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell]
    plain = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}[shell]
    ran = subprocess.run(
        [program, plain, "-c", text.format(script=script, words=" ".join(words), last=last, line=line)],
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ran.stderr == ""
    return ran.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("greenroom su", {"submit", "submit-many"}),
        ("greenroom db up", {"upgrade"}),
        ("greenroom submit --on-c", {"--on-conflict"}),
        ("greenroom submit --on-conflict ", {"reject", "queue", "replace", "join", "coalesce"}),
        ("greenroom token add alice --role op", {"operator"}),
        ("greenroom serve --log-format ", {"text", "json"}),
        ("greenroom serve --log-level w", {"warning"}),
        ("greenroom completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_a_shell_completes(shell: str, line: str, offered: set[str], tmp_path: Path):
    assert set(completed(shell, line, tmp_path)) == offered


def test_printing_the_script_needs_no_engine():
    assert imported("completion", "fish") & (HEAVY | {"trio", "msgspec", "rich"}) == set()


def test_an_unknown_shell_is_refused_with_those_that_are_known():
    done = runner().invoke(main, ["completion", "tcsh"])
    assert done.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in done.output
