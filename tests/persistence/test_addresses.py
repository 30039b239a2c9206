"""URLs of stores: their parts, and the errors for bad ones."""

import os
from pathlib import Path

import pytest

from greenroom.persistence.addresses import Address, parse_addresses
from greenroom.protocol.errors import Invalid


def parse(url: str) -> Address:
    [address] = parse_addresses(url)
    return address


def refusal(stores: str | list[str]) -> str:
    with pytest.raises(Invalid) as caught:
        parse_addresses(stores)
    return caught.value.message


def test_three_slashes_are_a_relative_path_and_four_an_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert parse("sqlite:///data/rel.db").path == tmp_path / "data/rel.db"
    assert parse("sqlite:////srv/abs.db").path == Path("/srv/abs.db")


def test_a_file_has_one_real_path_for_all_its_names(tmp_path: Path):
    os.symlink(tmp_path, tmp_path / "link")
    assert parse(f"sqlite:///{tmp_path}/link/../{tmp_path.name}/x.db") == parse(f"sqlite:///{tmp_path}/x.db")


def test_a_file_name_can_be_percent_encoded():
    assert parse("sqlite:////srv/100%25%3F.db").database == "/srv/100%?.db"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_sqlite_in_memory(url: str):
    assert parse(url).in_memory
    assert str(parse(url)) == "sqlite:///:memory:"


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite://x.db", "sqlite:////srv/"])
def test_a_sqlite_address_without_a_file_is_refused_with_the_valid_forms(url: str):
    assert "sqlite:////absolute.db" in refusal(url)


def test_the_parts_of_a_server_address_are_parsed():
    address = parse("postgresql://al%40ice:p%2Fw%3A%25@db.example.org:6543/green%20room")
    assert (address.kind, address.host, address.port) == ("postgresql", "db.example.org", 6543)
    assert (address.user, address.password, address.database) == ("al@ice", "p/w:%", "green room")


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "MySQL"])
def test_mariadb_is_mysql(scheme: str):
    assert parse(f"{scheme}://u:p@h/d").kind == "mysql"


@pytest.mark.parametrize(
    ("written", "host", "port"),
    [
        ("[::1]:5432", "::1", 5432),
        ("[fe80::1%25eth0]", "fe80::1%25eth0", None),
        ("%2Fvar%2Frun%2FPostgres", "/var/run/Postgres", None),
        ("", None, None),
        ("localhost:", "localhost", None),
    ],
)
def test_hosts(written: str, host: str | None, port: int | None):
    address = parse(f"postgresql://u@{written}/d")
    assert (address.host, address.port) == (host, port)


def test_a_password_can_be_empty_or_missing():
    assert parse("mysql://u:@h/d").password == ""
    assert parse("mysql://u@h/d").password is None
    assert parse("mysql://h/d").user is None


def test_no_password_is_shown():
    address = parse("postgresql://u:hush@[::1]:1/d?application_name=hush")
    assert "hush" not in repr(address) + str(address)
    assert str(address) == "postgresql://u@[::1]:1/d"


def test_a_unix_socket_is_shown_as_the_location_of_the_server():
    assert str(parse("mysql://u:p@/d?unix_socket=/run/my.sock")) == "mysql://u@/d?unix_socket=/run/my.sock"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hu@sh/x@h/d",
        "postgresql://u:hush@more@h:x/d",
        "postgresql://u:hu/sh@h/d",
        "postgresql://u:hu#sh@h/d",
        "postgresql://u:hush@h/d/e",
        "postgresql://u:hush@h:99999/d",
        "postgresql://u:hush@h/",
        "postgresql://u:hush",
        "mysql://u:hush@h,i/d",
        "mysql://u:hush@h/d?colour=red",
        "oracle://u:hush@h/d",
    ],
)
def test_no_error_message_contains_a_password(url: str):
    assert "hu" not in refusal(url)


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("greenroom.db", "sqlite:///"),
        ("postgres://u@h/d", "postgresql://"),
        ("postgresql+psycopg://u@h/d", "postgresql://"),
        ("postgresql://u@h:0/d", "'0'"),
        ("postgresql://u@h:x/d", "'x'"),
        ("postgresql://u@::1/d", "[::1]"),
        ("postgresql://u@h", "/name"),
        ("mysql://u@h/a/b", "'a/b'"),
        ("sqlite:////a%00b", "NUL"),
    ],
)
def test_a_bad_address_is_refused_with_the_remedy(url: str, named: str):
    assert named in refusal(url)


def test_several_addresses_keep_their_order():
    urls = ["mysql://a/d", "mariadb://b:1/d?program_name=x,y", "mysql://c/d"]
    assert [address.host for address in parse_addresses(urls)] == ["a", "b", "c"]
    assert parse_addresses(" , ".join(urls)) == parse_addresses(urls)
    assert parse_addresses(parse_addresses(urls)) == parse_addresses(urls)


def test_a_comma_within_an_address_separates_nothing():
    assert parse("mysql://h/d?init_command=SET%20a=1,b=2").parameters["init_command"] == "SET a=1,b=2"


def test_addresses_of_different_kinds_are_refused():
    assert "mysql and postgresql" in refusal(["postgresql://h/d", "mysql://h/d"])


def test_several_files_are_refused():
    assert "exactly one address" in refusal("sqlite:///a.db,sqlite:///b.db")


def test_no_address_is_refused():
    assert "at least one" in refusal([])


@pytest.mark.parametrize(
    ("url", "key", "value"),
    [
        ("sqlite:///x?synchronous=NORMAL", "synchronous", "normal"),
        ("sqlite:///x?synchronous=full", "synchronous", "full"),
        ("postgresql://h/d?sslmode=verify-full", "sslmode", "verify-full"),
        ("postgresql://h/d?application_name=my+app", "application_name", "my app"),
        ("postgresql://h/d?command_timeout=1.5", "command_timeout", 1.5),
        ("mysql://h/d?charset=utf8mb4", "charset", "utf8mb4"),
        ("mysql://h/d?unix_socket=%2Frun%2Fx", "unix_socket", "/run/x"),
        ("mysql://h/d?init_command=SET%20x=1", "init_command", "SET x=1"),
        ("mysql://h/d?program_name=p", "program_name", "p"),
    ],
)
def test_a_known_parameter_gets_its_type(url: str, key: str, value: object):
    assert parse(url).parameters == {key: value}


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_tls_files_must_exist(kind: str, tmp_path: Path):
    (tmp_path / "ca.pem").touch()
    assert parse(f"{kind}://h/d?ssl_ca={tmp_path}/ca.pem").parameters == {"ssl_ca": f"{tmp_path}/ca.pem"}
    assert refusal(f"{kind}://h/d?ssl_ca={tmp_path}/none.pem") == (
        f"parameter ssl_ca must be a file that exists (got '{tmp_path}/none.pem')"
    )


@pytest.mark.parametrize("key", ["connect_timeout", "read_timeout", "write_timeout", "autocommit"])
@pytest.mark.parametrize("start", ["sqlite:///x", "postgresql://h/d", "mysql://h/d"])
def test_a_parameter_that_a_url_cannot_set_is_refused_with_the_reason(start: str, key: str):
    message = refusal(f"{start}?{key}=1")
    assert message.startswith(f"parameter {key} of a store cannot be set: ")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        (
            "sqlite:///x?cache=shared",
            "unknown parameter 'cache' (value 'shared') in the address of a sqlite store: "
            "expected one of synchronous",
        ),
        ("sqlite:///x?sslmode=require", "'sslmode'"),
        ("mysql://h/d?sslmode=require", "'sslmode'"),
        ("mysql://h/d?command_timeout=3", "'command_timeout'"),
        ("mysql://h/d?application_name=x", "'application_name'"),
        ("postgresql://h/d?charset=utf8mb4", "'charset'"),
        ("postgresql://h/d?host=other", "'host'"),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_known_ones(url: str, named: str):
    assert named in refusal(url)


@pytest.mark.parametrize(
    ("url", "key", "value"),
    [
        ("sqlite:///x?synchronous=off", "synchronous", "'off'"),
        ("postgresql://h/d?sslmode=yes", "sslmode", "'yes'"),
        ("postgresql://h/d?command_timeout=soon", "command_timeout", "'soon'"),
        ("postgresql://h/d?command_timeout=0", "command_timeout", "'0'"),
        ("postgresql://h/d?command_timeout=-1", "command_timeout", "'-1'"),
        ("postgresql://h/d?command_timeout=nan", "command_timeout", "'nan'"),
        ("postgresql://h/d?command_timeout=inf", "command_timeout", "'inf'"),
        ("postgresql://h/d?application_name=", "application_name", "''"),
        ("mysql://h/d?charset=latin1", "charset", "'latin1'"),
    ],
)
def test_a_bad_value_is_refused_with_its_key(url: str, key: str, value: str):
    message = refusal(url)
    assert message.startswith(f"parameter {key} must be ")
    assert message.endswith(f" (got {value})")


def test_a_parameter_given_twice_is_refused():
    assert "duplicate parameter" in refusal("mysql://h/d?program_name=a&program_name=b")


@pytest.mark.parametrize("key", ["ssl_ca", "ssl_cert", "ssl_key"])
@pytest.mark.parametrize("mode", ["disable", "verify-full"])
def test_sslmode_cannot_be_combined_with_tls_files(key: str, mode: str):
    message = refusal(f"postgresql://h/d?{key}={__file__}&sslmode={mode}")
    assert f"sslmode={mode}" in message
    assert key in message


def test_a_key_without_its_certificate_is_refused():
    assert "ssl_cert" in refusal(f"mysql://h/d?ssl_key={__file__}")


def test_the_parameters_of_every_address_are_checked():
    assert "autocommit" in refusal("mysql://a/d, mysql://b/d?autocommit=true")
