"""Which webhooks a new run gets: that of its submission, and that of its lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...persistence.store import Memo
from ...persistence.webhooks import WebhookAdded
from ...protocol.errors import Invalid
from ...protocol.lane_settings import LaneConfig
from ...protocol.notify import Notify, read_notify
from ...protocol.values import shown
from ...protocol.webhooks import Webhook, receiver_of, webhook_id
from ..workers.networks import Networks, refusal_of_url


class Subscriptions:
    """See the module's docstring. `signs`: the engine has a secret with which it signs deliveries."""

    def __init__(self, networks: Networks, *, signs: bool, notify_of: Callable[[str], Notify | None]) -> None:
        self._networks = networks
        self._signs = signs
        self._notify_of = notify_of

    def check(self, notify: object, what: str = "notify") -> Notify:
        """Check where a caller wants events delivered. Raises `Invalid`."""
        found = read_notify(what, notify)
        refusal = refusal_of_url(found.url, self._networks)
        if refusal is not None:
            raise Invalid(f"{what}: url {shown(found.url)} is not called: {refusal}", value=found.url)
        if not self._signs:
            raise Invalid(
                f"{what} requires a secret with which deliveries are signed: set webhook_secret, or "
                "webhook_secret_file in the configuration"
            )
        return found

    def check_lanes(self, lanes: Mapping[str, LaneConfig]) -> None:
        """Check where configured lanes want events delivered. Raises `Invalid`."""
        for lane, config in lanes.items():
            if config.changes.get("notify") is not None:
                self.check(config.changes["notify"], f"notify of lane {shown(lane)}")

    def of_run(self, run: str, lane: str, notify: object, clock: Callable[[], float]) -> tuple[Memo, ...]:
        """What is committed with the creation of a run. `notify` is that of its submission."""
        of_lane = self._notify_of(lane)
        if notify is None and of_lane is None:
            return ()
        wanted = [] if notify is None else [self.check(notify)]
        if of_lane is not None:
            wanted.append(of_lane)
        by_url: dict[str, set[str]] = {}
        for each in wanted:
            by_url.setdefault(each.url, set()).update(each.types)
        return tuple(
            WebhookAdded(
                Webhook(id=webhook_id(run, url), run=run, url=url, types=tuple(sorted(types))),
                receiver_of(url),
                clock(),
            )
            for url, types in by_url.items()
        )
