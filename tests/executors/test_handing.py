"""Connections that a child process opens to its parent over the socket that it has inherited."""

import os
import socket
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from greenroom.actors.executors.handing import Handed, connection_over, hand_over
from greenroom.executor.beats import HandedBeats
from greenroom.persistence.leasekeeping import Failed, Renewed
from greenroom.protocol.executors import Beat, Beaten

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="requires Unix sockets")


class Parent:
    """The parent's end. It answers each frame with the frame, or as `answer` says."""

    def __init__(self):
        ours, self.inherited = socket.socketpair()
        self.handed = Handed(ours)
        self.answer = lambda frame: frame
        self.connections = 0
        self.over = trio.Event()
        self._opened = []

    def connect(self):
        self._opened.append(connection_over(hand_over(self.inherited)))
        return self._opened[-1]

    async def aclose(self):
        self.inherited.close()
        await self.handed.aclose()
        for connection in self._opened:
            await connection.aclose()

    async def _serve(self):
        await self.handed.serve(self._echo)
        self.over.set()

    async def _echo(self, connection):
        self.connections += 1
        try:
            while True:
                frame = await connection.receive()
                if (answer := self.answer(frame)) is None:
                    break
                await connection.send(answer)
        except (trio.EndOfChannel, trio.BrokenResourceError):
            pass
        finally:
            await trio.aclose_forcefully(connection)


@asynccontextmanager
async def parents():
    parent = Parent()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(parent._serve)
        try:
            yield parent
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await parent.aclose()


async def test_each_connection_has_its_own_frames():
    async with parents() as parent:
        first, second = (parent.connect() for _ in range(2))
        await second.send(b"2")
        await first.send(b"1")
        assert (await first.receive(), await second.receive()) == (b"1", b"2")
        await first.aclose()
        await second.send(b"3")
        assert await second.receive() == b"3"
        assert not parent.over.is_set()


async def test_no_connection_remains_when_the_child_has_closed_the_socket():
    async with parents() as parent:
        connection = parent.connect()
        await connection.send(b"1")
        assert await connection.receive() == b"1"
        parent.inherited.close()
        with trio.fail_after(30):
            await parent.over.wait()


async def test_files_of_the_process_are_not_leaked_by_connections():
    async with parents() as parent:
        before = None
        for _ in range(20):
            connection = parent.connect()
            await connection.send(b"1")
            await connection.receive()
            await connection.aclose()
            await trio.testing.wait_all_tasks_blocked()
            now = len(os.listdir("/proc/self/fd"))
            before = before or now
        assert now <= before + 2


async def test_a_byte_without_a_file_opens_no_connection():
    async with parents() as parent:
        parent.inherited.send(b"+")
        connection = parent.connect()
        await connection.send(b"1")
        assert await connection.receive() == b"1"
        assert parent.connections == 1


def test_without_a_parent_there_is_no_connection():
    parent, inherited = socket.socketpair()
    parent.close()
    with inherited, pytest.raises(BrokenPipeError):
        hand_over(inherited)


async def test_beats_open_another_connection_after_one_that_has_failed():
    async with parents() as parent:
        decode, encode = msgspec.json.Decoder(Beat).decode, msgspec.json.encode
        beats = HandedBeats("e1", "p1", 30.0, parent.inherited)

        async def renew(sent):
            return await trio.to_thread.run_sync(beats.renew, sent)

        parent.answer = lambda frame: encode(Beaten(decode(frame).sent, True))
        assert await renew(1.0) == Renewed(1.0)
        assert await renew(2.0) == Renewed(2.0)
        assert parent.connections == 1
        parent.answer = lambda frame: None
        assert isinstance(await renew(3.0), Failed)
        parent.answer = lambda frame: encode(Beaten(decode(frame).sent, True))
        assert await renew(4.0) == Renewed(4.0)
        assert parent.connections == 2
        parent.answer = lambda frame: encode(Beaten(decode(frame).sent, True)) + b"\nnot a beat\nnor this"
        assert await renew(5.0) == Renewed(5.0)
        assert isinstance(await renew(6.0), Failed)
        assert await renew(7.0) == Renewed(7.0)
        beats.release()


def test_beats_fail_when_no_one_answers_in_time():
    parent, inherited = socket.socketpair()
    with parent, inherited:
        beats = HandedBeats("e1", "p1", 0.01, inherited)
        assert isinstance(beats.renew(1.0), Failed)
