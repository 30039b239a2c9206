"""A client with blocking calls, for plain programs: Django views, scripts, notebooks, threads.

`connect` opens one. Its connection runs in its own thread, where trio runs the client of `greenroom.connect`.
Each call is passed to that thread and waits for the result. So any number of threads can use one client, also
next to a running asyncio loop. This module contains no other logic: every method is one of
`gateway.client`.
"""

from __future__ import annotations

import contextvars
import functools
import math
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

import trio

from .errors import GreenroomError, Unavailable
from .gateway.client import Client as AsyncClient
from .gateway.client import ClientTicket
from .gateway.client import connect as connect_async
from .gateway.client.cluster import ClientCluster
from .gateway.client.executors import ClientExecutors
from .gateway.client.flows import ClientFlows
from .gateway.client.schedules import ClientSchedules
from .gateway.client.webhooks import ClientWebhooks
from .gateway.client.workers import ClientWorkers
from .protocol.batches import RunKeywords, check_runs, with_on_wait
from .protocol.events import Event, Filter
from .protocol.jobs import AnyJob, JobFunction
from .protocol.records import RunRecord, Snapshot
from .protocol.submission import OnWait, SubmitKeywords
from .protocol.validation import FilesFate, check_seconds

__all__ = ["Client", "Ticket", "as_completed", "connect"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")
Params = ParamSpec("Params")


def connect(
    url: str | Sequence[str],
    *,
    token: str | None = None,
    ca_file: str | None = None,
    follow: bool = True,
    filter: Filter | Mapping[str, Any] | None = None,
    patience: float = 30.0,
    clock: trio.abc.Clock | None = None,
) -> Client:
    """Connect to the gateway at `url`, or to one of several; use the client in a `with` block, or `close` it.

    The arguments are those of `greenroom.connect`. `clock` is for tests.
    """
    opening = functools.partial(
        connect_async, url, token=token, ca_file=ca_file, follow=follow, filter=filter, patience=patience
    )
    return Client(_Thread(opening, clock))


class _Thread:
    """The thread in which a client runs, and calls into it."""

    def __init__(self, opening: Callable[[], Any], clock: trio.abc.Clock | None) -> None:
        self._opening = opening
        self._clock = clock
        self._process = os.getpid()
        self._opened: Future[AsyncClient] = Future()
        self._began = threading.Event()  # set when the token exists, or when the thread ends without one
        self._token: trio.lowlevel.TrioToken | None = None
        self.calls: trio.Nursery | None = None
        self._scope: trio.CancelScope
        self._thread = threading.Thread(target=self._run, name="greenroom client", daemon=True)
        self._thread.start()
        try:
            self.client = self._opened.result()
        except BaseException:  # Ctrl-C, too
            self.close()
            raise

    def start(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> _Call[T]:
        """Start an async function in the thread."""
        if os.getpid() != self._process:
            raise Unavailable(
                f"this client belongs to process {self._process}, which has forked: connect in each process"
            )
        call = _Call(functools.partial(function, *args, **kwargs), self)
        self.run_soon(call.begin, call.done)
        return call

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Call an async function in the thread; return its result. An interruption here, such as Ctrl-C,
        cancels the call."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("deadlock: a blocking call was made in the client's own thread")
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
        self.run_soon(self._leave)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def run_soon(self, act: Callable[[], object], done: Future[Any] | None = None) -> None:
        """Call `act` in the thread. If the thread has ended, `done` fails instead."""
        try:
            if self._token is None:
                raise trio.RunFinishedError
            self._token.run_sync_soon(act)
        except trio.RunFinishedError:
            if done is not None:
                done.set_exception(_closed_error())

    def _leave(self) -> None:
        self.calls = None
        self._scope.cancel()

    def _run(self) -> None:
        try:
            trio.run(self._live, clock=self._clock)
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
        finally:
            self._began.set()

    async def _live(self) -> None:
        with trio.CancelScope() as self._scope:
            self._token = trio.lowlevel.current_trio_token()
            self._began.set()
            async with self._opening() as client, trio.open_nursery() as self.calls:
                self._opened.set_result(client)
                await trio.sleep_forever()
        if not self._opened.done():
            self._opened.set_exception(_closed_error())


class _Call(Generic[T]):
    """A call in the thread, in the context of the caller; `done` is its outcome."""

    def __init__(self, function: Callable[[], Awaitable[T]], thread: _Thread) -> None:
        self.done: Future[T] = Future()
        self._function = function
        self._thread = thread
        self._scope = trio.CancelScope()
        self._context = contextvars.copy_context()

    def begin(self) -> None:
        """Start the call. Runs in the thread."""
        if self._thread.calls is None:
            self.done.set_exception(_closed_error())
        else:
            self._context.run(self._thread.calls.start_soon, self._act)

    def cancel(self) -> None:
        """Cancel the call, unless it has ended."""
        if not self.done.done():
            self._thread.run_soon(self._scope.cancel)

    async def _act(self) -> None:
        with self._scope:
            try:
                self.done.set_result(await self._function())
            except Exception as error:
                self.done.set_exception(error)
            finally:
                if not self.done.done():  # it was cancelled
                    self.done.set_exception(_closed_error())


def _closed_error() -> Unavailable:
    return Unavailable("the client is closed")


class _Blocking:
    """A part of the client whose methods block."""

    def __init__(self, thread: _Thread, inner: Any, client: Client | None = None) -> None:
        self._thread = thread
        self._inner = inner
        self._client = client  # keeps the client alive: it is closed with its last reference


def _blocking(
    method: Callable[Concatenate[Any, Params], Awaitable[T]],
) -> Callable[Concatenate[_Blocking, Params], T]:
    """A blocking version of an async method of the client."""

    @functools.wraps(method)
    def call(self: _Blocking, /, *args: Params.args, **kwargs: Params.kwargs) -> T:
        return self._thread.call(method, self._inner, *args, **kwargs)

    return call


def _submitting(
    method: Callable[Concatenate[Any, Params], Awaitable[ClientTicket[R]]],
) -> Callable[Concatenate[_Blocking, Params], Ticket[R]]:
    """A blocking version of a method that returns a ticket. `on_wait` is called in a thread and can block."""

    @functools.wraps(method)
    def call(self: _Blocking, /, *args: Params.args, **kwargs: Params.kwargs) -> Ticket[R]:
        on_wait = kwargs.get("on_wait")
        if callable(on_wait):
            kwargs["on_wait"] = _in_thread(on_wait)
        return Ticket(self, self._thread.call(method, self._inner, *args, **kwargs))

    return call


def _in_thread(on_wait: OnWait) -> OnWait:
    """Make `on_wait` run in a thread, where it can block."""

    async def call(*what: Any) -> None:
        await trio.to_thread.run_sync(on_wait, *what, abandon_on_cancel=True)

    return call


class Ticket(Generic[R]):
    """An accepted run. `id` is the run's id; `joined` is true if the run existed before the submission."""

    def __init__(self, of: _Blocking, inner: ClientTicket[R]) -> None:
        self.id = inner.id
        self.joined = inner.joined
        self._of = of
        self._thread = of._thread
        self._inner = inner

    def __repr__(self) -> str:
        return f"<Ticket of run {self.id}>"

    def result(self, timeout: float | None = None) -> R:
        """Wait for the end; return the result, or raise as `greenroom.Ticket.result` does. After `timeout`
        seconds, raises `TimeoutError`; the run continues."""
        if timeout is not None and not self.wait(check_seconds("timeout", timeout, 0)):
            raise TimeoutError(f"run {self.id} has not ended within {timeout:g} s; it continues")
        return self._thread.call(self._inner.result)

    def wait(self, timeout: float | None = 15) -> bool:
        """Wait for the end; return whether the run ended within `timeout` seconds."""
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


class Executors(_Blocking):
    """See `greenroom.Client.executors`."""

    list = _blocking(ClientExecutors.list)
    drain = _blocking(ClientExecutors.drain)


class Schedules(_Blocking):
    """See `greenroom.Client.schedules`."""

    put = _blocking(ClientSchedules.put)
    preview = _blocking(ClientSchedules.preview)
    list = _blocking(ClientSchedules.list)
    get = _blocking(ClientSchedules.get)
    pause = _blocking(ClientSchedules.pause)
    resume = _blocking(ClientSchedules.resume)
    trigger = _submitting(ClientSchedules.trigger)
    delete = _blocking(ClientSchedules.delete)


class Webhooks(_Blocking):
    """See `greenroom.Client.webhooks`."""

    dead = _blocking(ClientWebhooks.dead)
    failing = _blocking(ClientWebhooks.failing)
    redeliver = _blocking(ClientWebhooks.redeliver)
    drop = _blocking(ClientWebhooks.drop)


class Cluster(_Blocking):
    """See `greenroom.Client.cluster`."""

    status = _blocking(ClientCluster.status)
    step_down = _blocking(ClientCluster.step_down)


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
    """A client, as returned by `connect`. Its methods are those of `greenroom.Client`, but block."""

    def __init__(self, thread: _Thread) -> None:
        super().__init__(thread, thread.client)
        self._close = weakref.finalize(self, thread.close)  # also with the last reference, and at exit

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; calls that wait in other threads raise `Unavailable`. Can be called twice."""
        self._close()

    @property
    def flows(self) -> Flows:
        """Flows and their runs."""
        return Flows(self._thread, self._inner.flows, self)

    @property
    def executors(self) -> Executors:
        """Executors: processes that execute bodies."""
        return Executors(self._thread, self._inner.executors, self)

    @property
    def schedules(self) -> Schedules:
        """Schedules: runs that the engine submits at due times."""
        return Schedules(self._thread, self._inner.schedules, self)

    @property
    def webhooks(self) -> Webhooks:
        """Failing and dead webhooks, to which an event could not be delivered."""
        return Webhooks(self._thread, self._inner.webhooks, self)

    @property
    def cluster(self) -> Cluster:
        """The nodes behind the gateway."""
        return Cluster(self._thread, self._inner.cluster, self)

    @property
    def workers(self) -> Workers:
        """Workers and their work."""
        return Workers(self._thread, self._inner.workers, self)

    @property
    def url(self) -> str:
        """The URL of the gateway; with several addresses, that of the connection or of the next attempt."""
        return self._thread.client.url

    @property
    def role(self) -> str:
        """The role of the token: `viewer`, `operator`, `admin` or `worker`."""
        return self._thread.client.role

    @property
    def connected(self) -> bool:
        """Whether the client is connected; if not, it is reconnecting, unless it is closed."""
        return self._thread.client.connected

    @property
    def state(self) -> Snapshot:
        """The client's current state, without a request to the gateway; `snapshot` makes one."""

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
        """See `greenroom.Client.submit`. `on_wait` is called in a separate thread."""
        return _submit(self, job, **options)

    @overload
    def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: Literal[True] = True
    ) -> list[Ticket[Any]]: ...

    @overload
    def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: bool
    ) -> list[Ticket[Any] | GreenroomError]: ...

    def submit_many(self, runs: Sequence[RunKeywords], *, all_or_nothing: bool = True) -> Any:
        """See `greenroom.Client.submit_many`. `on_wait` is called in a separate thread."""
        check_runs(runs, all_or_nothing)
        given = with_on_wait(runs, _in_thread)
        method = functools.partial(AsyncClient.submit_many, all_or_nothing=all_or_nothing)
        outcomes = self._thread.call(method, self._inner, given)
        return [one if isinstance(one, GreenroomError) else Ticket(self, one) for one in outcomes]

    rerun = _submitting(AsyncClient.rerun)
    retry = _submitting(AsyncClient.retry)
    cancel_many = _blocking(AsyncClient.cancel_many)
    rerun_many = _blocking(AsyncClient.rerun_many)
    retry_many = _blocking(AsyncClient.retry_many)
    cancel = _blocking(AsyncClient.cancel)
    inject = _blocking(AsyncClient.inject)
    answer = _blocking(AsyncClient.answer)
    signal = _blocking(AsyncClient.signal)
    get_run = _blocking(AsyncClient.get_run)
    wait = _blocking(AsyncClient.wait)
    ended = _blocking(AsyncClient.ended)
    list_runs = _blocking(AsyncClient.list_runs)
    list_jobs = _blocking(AsyncClient.list_jobs)
    list_files = _blocking(AsyncClient.list_files)
    history = _blocking(AsyncClient.history)
    set_params = _blocking(AsyncClient.set_params)
    set_concurrency = _blocking(AsyncClient.set_concurrency)
    pause_lane = _blocking(AsyncClient.pause_lane)
    resume_lane = _blocking(AsyncClient.resume_lane)
    set_lane = _blocking(AsyncClient.set_lane)
    set_priority = _blocking(AsyncClient.set_priority)
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
        """The events from the call on, or those after the seq `after`; see `greenroom.Client.events`."""

        async def begin() -> Any:
            return self._thread.client.events(after, filter)

        return _Events(self, self._thread.call(begin))


_submit: Callable[..., Ticket[Any]] = _submitting(AsyncClient.submit)


class _Events(Iterator[Event | Snapshot]):
    """A blocking iterator over the items of an async one."""

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
    """Yield each ticket when its run has ended, in the order of the ends.

    After `timeout` seconds, raises `TimeoutError` if some runs have not ended; they continue.
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
