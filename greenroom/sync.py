"""A client for plain programs, whose calls block: Django views, scripts, notebooks, threads.

`connect` opens one. Its connection lives in a thread of its own, where trio runs the client of
`greenroom.connect`; each call here is handed over to that thread and waited for. So any number of threads may
use one client, and it works where an asyncio loop is running. Nothing is decided here: every method is one of
`gateway.client`'s.
"""

from __future__ import annotations

import functools
import math
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

import trio

from .errors import Unavailable
from .gateway.client import Client as AsyncClient
from .gateway.client import ClientTicket
from .gateway.client import connect as connect_async
from .gateway.client.flows import ClientFlows
from .gateway.client.workers import ClientWorkers
from .protocol.events import Event, Filter
from .protocol.jobs import AnyJob, JobFunction
from .protocol.records import RunRecord, Snapshot
from .protocol.submission import SubmitKeywords
from .protocol.validation import FilesFate, check_seconds

__all__ = ["Client", "Ticket", "as_completed", "connect"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")
Given = ParamSpec("Given")


def connect(
    url: str,
    *,
    token: str | None = None,
    ca_file: str | None = None,
    follow: bool = True,
    filter: Filter | Mapping[str, Any] | None = None,
    patience: float = 30.0,
    clock: trio.abc.Clock | None = None,
) -> Client:
    """A client of the gateway at `url`, connected; use it in a `with` block, or `close` it.

    The arguments are those of `greenroom.connect`. `clock` is for tests.
    """
    opening = functools.partial(
        connect_async, url, token=token, ca_file=ca_file, follow=follow, filter=filter, patience=patience
    )
    return Client(_Thread(opening, clock))


class _Thread:
    """The thread in which a client lives, and the way to it."""

    def __init__(self, opening: Callable[[], Any], clock: trio.abc.Clock | None) -> None:
        self._opening = opening
        self._clock = clock
        self._process = os.getpid()
        self._opened: Future[AsyncClient] = Future()
        self._left: Future[None] = Future()
        self._began = threading.Event()  # the token is there, or the thread has ended without one
        self._token: trio.lowlevel.TrioToken | None = None
        self.calls: trio.Nursery | None = None
        self._everything: trio.CancelScope
        self._thread = threading.Thread(target=self._run, name="greenroom client", daemon=True)
        self._thread.start()
        try:
            self.client = self._opened.result()
        except BaseException:  # Ctrl-C, too
            self.close()
            raise

    def start(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> _Call[T]:
        """Have an async function called in the thread."""
        if os.getpid() != self._process:
            raise Unavailable(
                f"this client belongs to process {self._process}, which has forked: connect in each process"
            )
        call = _Call(functools.partial(function, *args, **kwargs), self)
        self.soon(call.begin, call.done)
        return call

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """The same, and wait for it; its result. What ends the waiting here, Ctrl-C say, cancels it there."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("this would wait for itself: it is called in the client's own thread")
        call = self.start(function, *args, **kwargs)
        try:
            return call.done.result()
        finally:
            call.cancel()

    def close(self) -> None:
        """End the connection and all calls. Returns when the thread has ended."""
        if os.getpid() != self._process:
            return
        self._began.wait()
        self.soon(self._leave)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def soon(self, act: Callable[[], object], done: Future[Any] | None = None) -> None:
        """Have something done in the thread; without it, `done` fails."""
        try:
            if self._token is None:
                raise trio.RunFinishedError
            self._token.run_sync_soon(act)
        except trio.RunFinishedError:
            if done is not None:
                done.set_exception(_left())

    def _leave(self) -> None:
        self.calls = None
        self._everything.cancel()

    def _run(self) -> None:
        try:
            trio.run(self._live, clock=self._clock)
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
        finally:
            self._began.set()

    async def _live(self) -> None:
        with trio.CancelScope() as self._everything:
            self._token = trio.lowlevel.current_trio_token()
            self._began.set()
            async with self._opening() as client, trio.open_nursery() as self.calls:
                self._opened.set_result(client)
                await trio.sleep_forever()
        if not self._opened.done():
            self._opened.set_exception(_left())


class _Call(Generic[T]):
    """One call in the thread; `done` is its outcome."""

    def __init__(self, function: Callable[[], Awaitable[T]], thread: _Thread) -> None:
        self.done: Future[T] = Future()
        self._function = function
        self._thread = thread
        self._scope = trio.CancelScope()

    def begin(self) -> None:
        """Start it; in the thread."""
        if self._thread.calls is None:
            self.done.set_exception(_left())
        else:
            self._thread.calls.start_soon(self._act)

    def cancel(self) -> None:
        """End it, unless it has ended."""
        if not self.done.done():
            self._thread.soon(self._scope.cancel)

    async def _act(self) -> None:
        with self._scope:
            try:
                self.done.set_result(await self._function())
            except Exception as error:
                self.done.set_exception(error)
            finally:
                if not self.done.done():  # it was cancelled
                    self.done.set_exception(_left())


def _left() -> Unavailable:
    return Unavailable("the client is closed")


class _Blocking:
    """Something of the client whose methods block."""

    def __init__(self, thread: _Thread, inner: Any, client: Client | None = None) -> None:
        self._thread = thread
        self._inner = inner
        self._client = client  # which would be closed if nobody had it any more


def _blocking(
    method: Callable[Concatenate[Any, Given], Awaitable[T]],
) -> Callable[Concatenate[_Blocking, Given], T]:
    """An async method of the client, waited for."""

    @functools.wraps(method)
    def call(self: _Blocking, /, *args: Given.args, **kwargs: Given.kwargs) -> T:
        return self._thread.call(method, self._inner, *args, **kwargs)

    return call


def _submitting(
    method: Callable[Concatenate[Any, Given], Awaitable[ClientTicket[R]]],
) -> Callable[Concatenate[_Blocking, Given], Ticket[R]]:
    """The same for one that gives a ticket. Whom it calls is called in a thread, where it may block."""

    @functools.wraps(method)
    def call(self: _Blocking, /, *args: Given.args, **kwargs: Given.kwargs) -> Ticket[R]:
        on_wait = kwargs.get("on_wait")
        if callable(on_wait):

            async def heard(*what: Any) -> None:
                await trio.to_thread.run_sync(on_wait, *what, abandon_on_cancel=True)

            kwargs["on_wait"] = heard
        return Ticket(self, self._thread.call(method, self._inner, *args, **kwargs))

    return call


class Ticket(Generic[R]):
    """A run that was accepted. `id` is the run's; `joined` says that the run was there before."""

    def __init__(self, of: _Blocking, inner: ClientTicket[R]) -> None:
        self.id = inner.id
        self.joined = inner.joined
        self._of = of
        self._thread = of._thread
        self._inner = inner

    def __repr__(self) -> str:
        return f"<Ticket of run {self.id}>"

    def result(self, timeout: float | None = None) -> R:
        """Wait for the end, and return the result or raise as `greenroom.Ticket.result` does. With a timeout,
        `TimeoutError` is raised when it is over; the run goes on."""
        if timeout is not None and not self.wait(check_seconds("timeout", timeout, 0)):
            raise TimeoutError(f"run {self.id} has not ended within {timeout:g} s; it goes on")
        return self._thread.call(self._inner.result)

    def wait(self, timeout: float | None = 15) -> bool:
        """Whether the run ends within `timeout` seconds."""
        return self._thread.call(self._inner.wait, timeout)

    def cancel(self, files: FilesFate = "keep") -> RunRecord:
        """See `Client.cancel`."""
        return self._thread.call(self._inner.cancel, files)

    def _start_waiting(self) -> _Call[bool]:
        return self._thread.start(self._inner.wait, math.inf)


class Flows(_Blocking):
    """See `greenroom.Client.flows`."""

    check = _blocking(ClientFlows.check)
    create = _blocking(ClientFlows.create)
    publish = _blocking(ClientFlows.publish)
    add_version = _blocking(ClientFlows.add_version)
    list = _blocking(ClientFlows.list)
    versions = _blocking(ClientFlows.versions)
    version = _blocking(ClientFlows.version)
    start = _submitting(ClientFlows.start)
    task = _blocking(ClientFlows.task)
    tasks = _blocking(ClientFlows.tasks)
    node_runs = _blocking(ClientFlows.node_runs)


class Workers(_Blocking):
    """See `greenroom.Client.workers`."""

    register = _blocking(ClientWorkers.register)
    heartbeat = _blocking(ClientWorkers.heartbeat)
    allocate = _blocking(ClientWorkers.allocate)
    poll = _blocking(ClientWorkers.poll)
    complete = _blocking(ClientWorkers.complete)
    extend = _blocking(ClientWorkers.extend)
    list = _blocking(ClientWorkers.list)


class Client(_Blocking):
    """See `connect`, which opens one. Each method is the one of `greenroom.Client`, and blocks."""

    def __init__(self, thread: _Thread) -> None:
        super().__init__(thread, thread.client)
        self._close = weakref.finalize(self, thread.close)  # also when nobody has it any more, and at exit

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; calls that wait in other threads raise `Unavailable`. May be called twice."""
        self._close()

    @property
    def flows(self) -> Flows:
        """Flows and their runs."""
        return Flows(self._thread, self._inner.flows, self)

    @property
    def workers(self) -> Workers:
        """Workers and their work."""
        return Workers(self._thread, self._inner.workers, self)

    @property
    def url(self) -> str:
        """Where the gateway is."""
        return self._thread.client.url

    @property
    def role(self) -> str:
        """What the token permits: `viewer`, `operator`, `admin` or `worker`."""
        return self._thread.client.role

    @property
    def connected(self) -> bool:
        """Whether there is a connection now; if not, one is being made, unless the client is closed."""
        return self._thread.client.connected

    @property
    def state(self) -> Snapshot:
        """What the client has been told, as of now; unlike `snapshot`, which asks the gateway."""

        async def read() -> Snapshot:
            return self._thread.client.state.snapshot()

        return self._thread.call(read)

    wait_lost = _blocking(AsyncClient.wait_lost)
    wait_connected = _blocking(AsyncClient.wait_connected)

    @overload
    def submit(
        self, job: str, *, handle: str, params: Any = None, **options: Unpack[SubmitKeywords]
    ) -> Ticket[Any]: ...

    @overload
    def submit(
        self,
        job: JobFunction[P, R, ..., Any],
        *,
        handle: str,
        params: P | None = None,
        **options: Unpack[SubmitKeywords],
    ) -> Ticket[R]: ...

    def submit(self, job: str | AnyJob, **options: Any) -> Ticket[Any]:
        """See `greenroom.Client.submit`. `on_wait` is called in a thread of its own."""
        return _submit(self, job, **options)

    rerun = _submitting(AsyncClient.rerun)
    cancel = _blocking(AsyncClient.cancel)
    inject = _blocking(AsyncClient.inject)
    answer = _blocking(AsyncClient.answer)
    signal = _blocking(AsyncClient.signal)
    get_run = _blocking(AsyncClient.get_run)
    wait = _blocking(AsyncClient.wait)
    ended = _blocking(AsyncClient.ended)
    list_runs = _blocking(AsyncClient.list_runs)
    history = _blocking(AsyncClient.history)
    set_params = _blocking(AsyncClient.set_params)
    set_concurrency = _blocking(AsyncClient.set_concurrency)
    set_max_concurrent = _blocking(AsyncClient.set_max_concurrent)
    clear_lane = _blocking(AsyncClient.clear_lane)
    clear_handle = _blocking(AsyncClient.clear_handle)
    release_handle = _blocking(AsyncClient.release_handle)
    reset_lanes = _blocking(AsyncClient.reset_lanes)
    wait_for_active = _blocking(AsyncClient.wait_for_active)
    drain = _blocking(AsyncClient.drain)
    resume = _blocking(AsyncClient.resume)
    snapshot = _blocking(AsyncClient.snapshot)

    def events(
        self, after: int | None = None, filter: Filter | Mapping[str, Any] | None = None
    ) -> Iterator[Event | Snapshot]:
        """The events from the call on, or from the one after `after`; see `greenroom.Client.events`."""

        async def begin() -> Any:
            return self._thread.client.events(after, filter)

        return _Events(self, self._thread.call(begin))


_submit: Callable[..., Ticket[Any]] = _submitting(AsyncClient.submit)


class _Events(Iterator[Event | Snapshot]):
    """An iterator over what an async one gives."""

    def __init__(self, client: Client, inner: Any) -> None:
        self._client = client
        self._inner = inner

    def __next__(self) -> Event | Snapshot:
        async def step() -> Event | Snapshot | None:
            return await anext(self._inner, None)

        item = self._client._thread.call(step)
        if item is None:
            raise StopIteration
        return item


def as_completed(tickets: Iterable[Ticket[R]], timeout: float | None = None) -> Iterator[Ticket[R]]:
    """The tickets, each when its run has ended: those that end first come first.

    With a timeout, `TimeoutError` is raised when it is over before all runs have ended; they go on.
    """
    if timeout is not None:
        check_seconds("timeout", timeout, 0)
    waits = {id(call.done): (call, ticket) for ticket in tickets for call in [ticket._start_waiting()]}
    try:
        for done in futures.as_completed([call.done for call, _ in waits.values()], timeout):
            done.result()
            yield waits[id(done)][1]
    finally:
        for call, _ in waits.values():
            call.cancel()
