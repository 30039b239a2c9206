"""The page with all texts is current, and its words are those of the field."""

from __future__ import annotations

import re

import pytest

from .collecting import messages, messages_in
from .page import PAGE, page

# Words that an engineer would not search for, or has to read twice, and what to write in their place.
UNCLEAR = {
    r"\bwhoever\b|\bwhatever\b|\bthose who\b": "name the actor: the client, the caller, the engine",
    r"\b(is|are|be|was|were|been) told\b|\btells?\b|\bspeaks? of\b": "reports, receives, logs, shows",
    r"\b(has|have|had) come\b|\bcame\b": "arrives, was received, occurs",
    r"\bgo(es)? on\b|\bwent on\b": "continues, resumes",
    r"\bstands? (in|for|at|there|above|below)\b": "is in, is listed in, represents",
    r"\bto be had\b|\bbe had\b": "is available",
    r"\b(is|are|being|be) left\b": "remains; shuts down",
    r"\bso many\b|\bhow-manieth\b": "at most N; the index",
    r"\bmend(s|ed|ing)?\b": "fix, repair",
    r"\bin force\b": "valid, revoked, expired",
    r"\bany ?more\b|\bany longer\b": "no longer",
    r"\bbut for\b": "except",
    r"\banew\b|\bafresh\b": "again",
    r"\bnobody\b|\bsomebody\b|\banybody\b": "name the actor",
    r"\bcancell?ed\b(?<!cancelled)|\bcanceling\b": "cancelled (only the compatible task calls use one l)",
}
ALLOWED = {"gateway/tasks/forms.py"}  # the words of the compatible calls


def test_the_page_with_all_texts_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.messages`"


@pytest.mark.parametrize(("pattern", "remedy"), UNCLEAR.items(), ids=range(len(UNCLEAR)))
def test_no_text_uses_an_unclear_word(pattern: str, remedy: str) -> None:
    found = [
        f"{message.module}:{message.line}: {message.text}"
        for message in messages()
        if re.search(pattern, message.text, re.IGNORECASE) and message.module not in ALLOWED
    ]
    assert not found, f"write instead: {remedy}\n" + "\n".join(found)


def test_every_text_is_collected_with_its_kind_and_samples() -> None:
    source = '''
"""A docstring is no message."""

def check(limit, handle):
    """Nor is this one."""
    if limit < 0:
        raise Invalid(f"lane limit must be at least 0 (got {limit})", path="limit")
    logger.warning("handle %s is busy", handle)
    option("--lane", help="The lane " + f"of {shown(handle)}.")
    return f"no run of {'this handle' if handle else 'that lane'}: {handle[0]!r}"
'''
    assert [(message.kind, message.text) for message in messages_in(source, "m.py")] == [
        ("error", "lane limit must be at least 0 (got 1000)"),
        ("log", "handle %s is busy"),
        ("help", 'The lane of "alice".'),
        ("text", "no run of this handle: alice"),
        ("text", "this handle"),
        ("text", "that lane"),
    ]
