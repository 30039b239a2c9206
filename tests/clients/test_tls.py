"""A client over TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom import connect
from greenroom.errors import Invalid, Unavailable
from greenroom.gateway import GatewayConfig

from ..servers import make_certificate
from .test_javascript import serving


async def test_a_certificate_is_trusted_if_it_is_named(tmp_path: Path):
    certificate, key = make_certificate(tmp_path, "localhost")
    config = GatewayConfig(port=0, tls_certificate=str(certificate), tls_key=str(key))
    async with serving(config) as (_, gateway, _):
        url = f"wss://localhost:{gateway.port}"
        async with connect(url, ca_file=str(certificate)) as client:
            assert await (await client.submit("add", handle="a", params={"a": 1, "b": 2})).result() == 3
            assert client.state.snapshot() == await client.snapshot()
        with pytest.raises(Unavailable, match=r"(?i)certificate"):
            async with connect(url):
                pass
        with pytest.raises(Unavailable):
            async with connect(f"ws://localhost:{gateway.port}"):
                pass
    with pytest.raises(Invalid, match="ca_file"):
        async with connect(url, ca_file=str(key)):
            pass
