"""Who is let in: the token that a request brings, the `Host` that it names, the `Origin` of the page behind
it."""

from __future__ import annotations

import logging

from ...protocol.errors import Forbidden, Invalid, Unauthorized
from ...protocol.values import shown
from ..config import GatewayConfig
from . import origins
from .tokens import EVERYONE, LOCAL_WORKER, Caller, Tokens

logger = logging.getLogger("greenroom.gateway")


class Access:
    """The rules of one configuration."""

    def __init__(self, config: GatewayConfig) -> None:
        self._tokens = None if config.token_file is None else Tokens.load(config.token_file)
        self._hosts = frozenset(host.lower() for host in config.allowed_hosts)
        self._origins = frozenset(origin.lower() for origin in config.allowed_origins)
        self.admits_local_workers = config.workers_without_token == "loopback"
        """Whether workers on this machine need no token."""
        if self._tokens is None and not origins.is_loopback(config.host):
            raise Invalid(
                f"host {shown(config.host)} can be reached from elsewhere, so a token_file is needed: "
                "make one with `greenroom token add`, or listen on 127.0.0.1",
                value=config.host,
            )
        if self.admits_local_workers and not origins.is_loopback(config.host):
            raise Invalid(
                f"workers_without_token is 'loopback', and host {shown(config.host)} can be reached from "
                "elsewhere: give the workers tokens (`greenroom token add NAME --role worker`), or listen "
                "on 127.0.0.1",
                value=config.workers_without_token,
            )

    def warn(self) -> None:
        """Log what is permitted and dangerous."""
        if self.admits_local_workers and self._tokens is not None:
            logger.warning(
                "workers_without_token: every program on this machine may take and complete work without a "
                "token; behind a proxy on this machine, everyone who reaches the proxy may"
            )

    @property
    def asks_for_tokens(self) -> bool:
        """Whether a token is needed at all."""
        return self._tokens is not None

    def check_page(self, host: str | None, origin: str | None, *, secure: bool) -> None:
        """Refuse a request that a foreign web page may have made. Raises `Forbidden`. `host` is `None` in
        HTTP/1.0 only, which no browser speaks."""
        if host is not None and not origins.is_known_host(host, self._hosts):
            raise Forbidden(
                f"the Host {shown(host)} is not one of this gateway's: add it to allowed_hosts if it is",
                host=host,
            )
        if origin is not None and not self.is_allowed_origin(origin, host, secure=secure):
            raise Forbidden(
                f"pages of {shown(origin)} may not use this gateway: add it to allowed_origins if they may",
                origin=origin,
            )

    def is_allowed_origin(self, origin: str, host: str | None, *, secure: bool) -> bool:
        """Whether a page of this origin may use the gateway, in a request to a host that is known."""
        if origin.lower() in self._origins:
            return True
        return host is not None and origins.names(origin, host, secure=secure)

    def caller(self, authorization: str | None) -> Caller | None:
        """Who makes a request with this `Authorization` header; `None` if a token is needed and none is
        there. Raises `Unauthorized` for a token that isn't in force."""
        if self._tokens is None:
            return EVERYONE
        if authorization is None:
            return None
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthorized("the Authorization header must be: Bearer <token>")
        return self.holder(token.strip())

    def holder(self, token: str) -> Caller:
        """Whose token it is. Raises `Unauthorized` if nobody's."""
        if self._tokens is None:
            return EVERYONE
        caller = self._tokens.find(token)
        if caller is None:
            raise Unauthorized("this token is not in force")
        return caller

    def still_lets_in(self, caller: Caller) -> bool:
        """Whether someone who was let in under other rules would be let in now."""
        if caller == LOCAL_WORKER:
            return self.admits_local_workers
        if self._tokens is None:
            return caller == EVERYONE
        return self._tokens.holds(caller)
