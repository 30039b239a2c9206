"""TLS with certificate files: both protocols over it, and the answer to plain text."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from trio_websocket import open_websocket

from .support import Raw, Talk, house


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The files of a certificate for localhost, and of its key."""
    folder: Path = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(folder / "cert.pem"), str(folder / "key.pem")


async def test_both_protocols_go_through_tls(certificate):
    trusting = ssl.create_default_context(cafile=certificate[0])
    async with house(tls_certificate=certificate[0], tls_key=certificate[1]) as home:
        assert home.gateway.url.startswith("https://")
        async with open_websocket("localhost", home.gateway.port, "/", use_ssl=trusting) as socket:
            talk = Talk(socket)
            await talk.call("subscribe")
            for number in range(20):
                await talk.call("set_params", handle="h", params=["x" * 10_000, number])
            assert len(talk.events()) == 20
        stream = await trio.open_tcp_stream("127.0.0.1", home.gateway.port)
        encrypted = trio.SSLStream(stream, trusting, server_hostname="localhost", https_compatible=True)
        answer = await Raw(encrypted).http("GET", "/api/state", origin="https://localhost")
        assert answer.status == 200
        answer = await Raw(encrypted).http("GET", "/api/state", origin="http://localhost")
        assert answer.status == 403
        await encrypted.aclose()


async def test_plain_text_on_a_tls_port_disturbs_no_other_client(certificate):
    async with house(tls_certificate=certificate[0], tls_key=certificate[1]) as home:
        raw = await home.raw()
        await raw.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with trio.fail_after(30):
            while await raw.stream.receive_some():
                pass
        await raw.stream.aclose()
        assert home.gateway.connections == 0
