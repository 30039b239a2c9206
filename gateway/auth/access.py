"""Checks of a request: its token, its `Host` and its `Origin`."""

from __future__ import annotations

import hmac
import logging

from ...protocol.errors import Forbidden, Invalid, Unauthorized
from ...protocol.values import shown
from ..config import GatewayConfig
from . import origins
from .tokens import EVERYONE, LOCAL_WORKER, NODE, Caller, Role, Tokens

logger = logging.getLogger("greenroom.gateway")


class Access:
    """The access rules of one configuration. `secret` is that of the cluster, with which nodes and their
    executors authenticate."""

    def __init__(self, config: GatewayConfig, secret: str | None = None) -> None:
        self._secret = secret
        self._tokens = None if config.token_file is None else Tokens.load(config.token_file)
        self._hosts = frozenset(host.lower() for host in config.allowed_hosts)
        self._origins = frozenset(origin.lower() for origin in config.allowed_origins)
        self.admits_local_workers = config.workers_without_token == "loopback"
        """Whether workers on this machine need no token."""
        if self._tokens is None and not origins.is_loopback(config.host):
            raise Invalid(
                f"host {shown(config.host)} is not a loopback address, so a token_file is required: "
                "create one with `greenroom token add`, or listen on 127.0.0.1",
                value=config.host,
            )
        if self.admits_local_workers and not origins.is_loopback(config.host):
            raise Invalid(
                f"workers_without_token = 'loopback' requires a loopback address (got host "
                f"{shown(config.host)}): create tokens for the workers (`greenroom token add NAME --role "
                "worker`), or listen on 127.0.0.1",
                value=config.workers_without_token,
            )

    def warn(self) -> None:
        """Log settings that are permitted but dangerous."""
        if self.admits_local_workers and self._tokens is not None:
            logger.warning(
                "workers_without_token is 'loopback': every program on this machine can take and complete "
                "work without a token; behind a proxy on this machine, so can every client of the proxy"
            )

    @property
    def asks_for_tokens(self) -> bool:
        """Whether clients must have a token."""
        return self._tokens is not None

    def check_page(self, host: str | None, origin: str | None, *, secure: bool) -> None:
        """Refuse a request that a foreign web page may have made. Raises `Forbidden`.

        `host` is `None` only in HTTP/1.0, which browsers do not use.
        """
        if host is not None and not origins.is_known_host(host, self._hosts):
            raise Forbidden(
                f"unknown Host {shown(host)}: add it to allowed_hosts if it is a name of this gateway",
                host=host,
            )
        if origin is not None and not self.is_allowed_origin(origin, host, secure=secure):
            raise Forbidden(
                f"origin {shown(origin)} is not allowed: add it to allowed_origins to allow its pages",
                origin=origin,
            )

    def is_allowed_origin(self, origin: str, host: str | None, *, secure: bool) -> bool:
        """Whether a page of this origin can use the gateway, given the request's `Host`."""
        if origin.lower() in self._origins:
            return True
        return host is not None and origins.names(origin, host, secure=secure)

    def caller(self, authorization: str | None) -> Caller | None:
        """The caller of a request with this `Authorization` header; `None` if a required token is missing.

        Raises `Unauthorized` for an invalid or revoked token.
        """
        if self._tokens is None:
            return EVERYONE
        if authorization is None:
            return None
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthorized("the Authorization header must be: Bearer <token>")
        return self.holder(token.strip())

    def holder(self, token: str) -> Caller:
        """The caller to whom a token belongs. Raises `Unauthorized` for an invalid or revoked token."""
        if self._tokens is None:
            return EVERYONE
        caller = self._tokens.find(token)
        if caller is None:
            raise Unauthorized("invalid or revoked token")
        return caller

    def as_client(self, caller: Caller) -> Caller:
        """The same caller, if it can use commands. Raises `Forbidden` for an executor."""
        if caller.role is Role.EXECUTOR:
            raise Forbidden("a token of role executor can only attach an executor, at the path /executor")
        return caller

    def node(self, authorization: str | None) -> Caller:
        """The node of this cluster that has sent this `Authorization` header. Raises `Unauthorized`."""
        if not self.is_member(authorization):
            raise Unauthorized("the secret of the cluster is missing or differs: use the same secret_file")
        return NODE

    def is_member(self, authorization: str | None) -> bool:
        """Whether this `Authorization` header has the secret of the cluster."""
        if self._secret is None or authorization is None:
            return False
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode(errors="surrogateescape")
        return scheme.lower() == "bearer" and hmac.compare_digest(given, self._secret.encode())

    def executor(self, authorization: str | None) -> Caller:
        """The caller of an executor's connection with this `Authorization` header. Raises `Unauthorized`
        without a valid token, and `Forbidden` for a token of another role."""
        if self.is_member(authorization):
            return NODE
        caller = self.caller(authorization)
        if caller is None:
            raise Unauthorized("token required: send `Authorization: Bearer <token>` with the handshake")
        if caller != EVERYONE and caller.role is not Role.EXECUTOR:
            raise Forbidden(
                f"requires the role {Role.EXECUTOR} (the token's role: {caller.role})", role=caller.role
            )
        return caller

    def named(self, name: str) -> Caller | None:
        """The caller of this name who would be accepted now."""
        callers = (EVERYONE,) if self._tokens is None else self._tokens
        return next((caller for caller in callers if caller.name == name), None)

    def still_admits(self, caller: Caller) -> bool:
        """Whether a caller that was authenticated under earlier rules would be accepted now."""
        if caller == LOCAL_WORKER:
            return self.admits_local_workers
        if caller == NODE:
            return True
        if self._tokens is None:
            return caller == EVERYONE
        return self._tokens.holds(caller)
