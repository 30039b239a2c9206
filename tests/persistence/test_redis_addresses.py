"""Addresses of Redis: which are accepted, and what the errors say about the others."""

from pathlib import Path

import pytest

from greenroom.persistence.redis_addresses import RedisAddress, parse_redis_address
from greenroom.protocol.errors import Invalid


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://one", RedisAddress("redis", (("one", 6379),))),
        (" REDIS://one:7000/3 ", RedisAddress("redis", (("one", 7000),), 3)),
        ("redis://[::1]:7000/", RedisAddress("redis", (("::1", 7000),))),
        ("redis://:p%40ss@one", RedisAddress("redis", (("one", 6379),), password="p@ss")),
        ("redis://a%3Ab:c@one", RedisAddress("redis", (("one", 6379),), user="a:b", password="c")),
        ("rediss://one", RedisAddress("rediss", (("one", 6379),))),
        (
            "redis+cluster://:pw@one,two:7000",
            RedisAddress("redis+cluster", (("one", 6379), ("two", 7000)), password="pw"),
        ),
        ("rediss+cluster://one/0", RedisAddress("rediss+cluster", (("one", 6379),))),
        (
            "redis+sentinel://one,two:7000,[::2]/my%2Fservice/2",
            RedisAddress("redis+sentinel", (("one", 26379), ("two", 7000), ("::2", 26379)), 2, "my/service"),
        ),
        ("rediss+sentinel://one/x", RedisAddress("rediss+sentinel", (("one", 26379),), service="x")),
    ],
)
def test_an_address_names_servers_a_cluster_or_a_service(url: str, expected: RedisAddress):
    assert parse_redis_address(url) == expected


@pytest.mark.parametrize(
    ("url", "kind", "tls"),
    [
        ("redis://a", "server", False),
        ("rediss://a", "server", True),
        ("redis+cluster://a", "cluster", False),
        ("rediss+cluster://a", "cluster", True),
        ("redis+sentinel://a/b", "sentinel", False),
        ("rediss+sentinel://a/b", "sentinel", True),
    ],
)
def test_the_scheme_says_what_is_addressed_and_whether_with_tls(url: str, kind: str, tls: bool):
    address = parse_redis_address(url)
    assert (address.kind, address.tls) == (kind, tls)


def test_the_files_of_tls_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("ca", "cert", "key"):
        Path(name).touch()
    address = parse_redis_address("rediss://one?ssl_ca=ca&ssl_cert=cert&ssl_key=key")
    assert (address.ssl_ca, address.ssl_cert, address.ssl_key) == tuple(
        f"{tmp_path}/{name}" for name in ("ca", "cert", "key")
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@one:7000/3", "redis://user@one:7000/3"),
        ("redis://:secret@one", "redis://one:6379"),
        ("rediss+cluster://:secret@one,[::1]:7000", "rediss+cluster://one:6379,[::1]:7000"),
        ("redis+sentinel://:secret@one/a%2Fb/1", "redis+sentinel://one:26379/a%2Fb/1"),
    ],
)
def test_the_text_of_an_address_has_no_password(url: str, shown: str):
    address = parse_redis_address(url)
    assert str(address) == shown
    assert "secret" not in repr(address)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("one:6379", "must begin with one of redis, rediss, redis+cluster, .* (got an address without ://)"),
        ("http://one", "(got 'http')"),
        ("redis://", "has a host that is not valid: write host:port"),
        ("redis://::1", "has a host that is not valid: write host:port, or [::1]:port"),
        ("redis://:pw@a b", "has a host that is not valid (got 'a b')"),
        ("redis://one:x", "must be between 1 and 65535; a password is written as :password@host"),
        ("redis://:pw@one:x", "must be between 1 and 65535 (got 'x')"),
        ("redis://one:0", "must be between 1 and 65535"),
        ("redis://one:65536", "must be between 1 and 65535"),
        ("redis://one,two", "has one host (got 2): for several, write redis+cluster:// or redis+sentinel://"),
        ("redis+cluster://one,", "has a host that is not valid"),
        ("redis://one/x", "must be a number, as in /0 (got 'x')"),
        ("redis://one/-1", "must be a number, as in /0 (got '-1')"),
        ("redis+cluster://one/1", "has only database 0 (got 1): remove it"),
        (
            "redis+sentinel://one",
            "has no service: add the name .* as in redis+sentinel://host:26379/mymaster",
        ),
        ("redis+sentinel://one/x/y", "must be a number, as in /0 (got 'y')"),
        ("redis://secret@one", "has no password before its @: write it as :password@ or user:password@"),
        ("redis://secret:@one", "has no password before its @"),
        ("redis://one?timeout=1", "unknown parameter 'timeout' .*: expected ssl_ca, ssl_cert, ssl_key"),
        ("redis://one?ssl_ca=x", "ssl_ca requires TLS (got redis://): begin the address with rediss"),
        ("rediss://one?ssl_ca=x", "ssl_ca must be a file that exists (got 'x')"),
        ("rediss://one?ssl_ca=/dev", "ssl_ca must be a file that exists (got '/dev')"),
        (f"rediss://one?ssl_ca={__file__}&ssl_ca={__file__}", "duplicate parameter ssl_ca .*: keep one"),
        (f"rediss://one?ssl_key={__file__}", "ssl_key requires ssl_cert: add the certificate of the key"),
    ],
)
def test_a_bad_address_is_refused_with_the_value_and_the_remedy(url: str, message: str):
    with pytest.raises(Invalid) as caught:
        parse_redis_address(url)
    for part in message.split(".*"):
        assert part.strip() in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:sec/ret@one",
        "redis://user:sec?ret@one",
        "redis://user:sec?ret=1@one",
        "redis://user:sec#ret@one",
        "redis://user:sec%00ret@one",
        "redis://sec:ret",
        "redis://sec ret",
        "redis+cluster://user:sec,ret",
        "redis://user:1/sec@ret",
        "redis://user:1?sec@ret=1",
    ],
)
def test_no_error_contains_a_part_of_a_password(url: str):
    with pytest.raises(Invalid) as caught:
        parse_redis_address(url)
    assert "sec" not in caught.value.message
    assert "ret" not in caught.value.message
