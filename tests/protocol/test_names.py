"""Names of handles and lanes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.errors import Invalid
from greenroom.protocol.names import check_name, is_probe, lane_name, session_handle


@pytest.mark.parametrize(
    ("key", "handle"),
    [
        ("", "session:main"),
        ("   ", "session:main"),
        ("main", "session:main"),
        ("alice", "session:alice"),
        ("  alice\n", "session:alice"),
        ("session:alice", "session:alice"),
        (" session:alice ", "session:alice"),
        ("Session:alice", "session:Session:alice"),
    ],
)
def test_each_session_has_a_handle(key, handle):
    assert session_handle(key) == handle


@given(st.text())
def test_the_session_handle_of_a_session_handle_is_itself(key):
    assert session_handle(session_handle(key)) == session_handle(key)


@pytest.mark.parametrize(
    ("name", "lane"), [("", "main"), (" \t", "main"), (None, "main"), (" slow ", "slow"), ("main", "main")]
)
def test_a_lane_name_is_trimmed_and_defaults_to_main(name, lane):
    assert lane_name(name) == lane


@pytest.mark.parametrize("name", ["auth-probe:", "auth-probe:openai", "session:probe-1"])
def test_probes_are_recognized_by_their_names(name):
    assert is_probe(name)


@pytest.mark.parametrize("name", ["session:auth-probe:x", "probe-1", "session:main", "session:probe", ""])
def test_other_names_are_not_probes(name):
    assert not is_probe(name)


@pytest.mark.parametrize("name", ["alice", "账号-1", "a b", "session:main", "x" * 256])
def test_a_valid_name_is_returned_unchanged(name):
    assert check_name("handle", name) == name


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", 'handle must not be empty (got "")'),
        ("  ", 'handle must not be empty (got "  ")'),
        ("x" * 257, "has 257 characters: at most 256 are allowed"),
        ("a\nb", "contains non-printable characters"),
        ("a\x00", "contains non-printable characters"),
        ("\ud800", "contains non-printable characters"),
        (7, "handle must be a string (got 7)"),
        (None, "handle must be a string (got null)"),
        (b"alice", "handle must be a string (got b'alice')"),
    ],
)
def test_a_bad_name_is_refused_with_the_reason(name, complaint):
    with pytest.raises(Invalid) as refused:
        check_name("handle", name)
    assert complaint in refused.value.message


def test_the_error_for_a_huge_name_is_short():
    with pytest.raises(Invalid) as refused:
        check_name("lane", "x" * 1_000_000)
    assert len(refused.value.message) < 200
    assert len(refused.value.details["value"]) <= 100
