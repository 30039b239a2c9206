"""The lease of a store: who can take it, when it expires, and what its holder does."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import psycopg
import pytest
import trio

from greenroom.persistence import migrating
from greenroom.persistence.addresses import parse_addresses
from greenroom.persistence.backup import back_up
from greenroom.persistence.database import DatabaseManager
from greenroom.persistence.drivers import connect
from greenroom.persistence.elections import Election
from greenroom.persistence.failures import StoreBroken
from greenroom.persistence.holders import Holder, begins, ends, is_alive, this_process
from greenroom.persistence.lease import ENGINE, Free, Lease, Leases, Refused, Wait, may_take
from greenroom.persistence.leasekeeping import Asked, Do, Failed, Keeping, Renewed, Taken, Told
from greenroom.persistence.schema import metadata
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import Batch, Retention, Stored
from greenroom.protocol.errors import Conflict
from tests.servers import Server

HOLD = """
import sys, trio
from greenroom.persistence.sqlstore import SqlStore

async def hold():
    store = SqlStore(sys.argv[1], lease_ttl=float(sys.argv[2]))
    await store.open("epoch", 3, 0.0)
    print("held", flush=True)
    await trio.sleep_forever()

trio.run(hold)
"""


# The machine `Keeping`.


def test_a_lease_is_renewed_after_a_third_of_its_ttl():
    keeping = Keeping(15, sent=100)
    assert keeping.turn(104.9) == []
    assert keeping.next() == 105
    assert keeping.turn(105) == [Do.RENEW]
    assert keeping.turn(105.2, Renewed(105)) == []
    assert keeping.until == 120
    assert keeping.next() == 110


def test_the_ttl_counts_from_the_sending_of_the_renewal_and_not_from_its_answer():
    keeping = Keeping(15, sent=0)
    assert keeping.turn(5) == [Do.RENEW]
    keeping.turn(9.9, Renewed(5))
    assert keeping.until == 20
    assert keeping.acts_until == 17


def test_a_holder_that_cannot_renew_cancels_bodies_before_the_expiry_and_ends_the_rest_at_it():
    keeping = Keeping(15, sent=0)
    assert keeping.turn(5) == [Do.RENEW]
    assert keeping.turn(5.1, Failed("no line")) == []
    assert keeping.turn(6.1) == [Do.RENEW]
    assert keeping.turn(6.2, Failed("no line")) == []
    assert keeping.turn(12) == [Do.CANCEL, Do.RENEW]
    assert keeping.turn(15, Failed("no line")) == [Do.END]
    assert keeping.turn(16) == [Do.RENEW]
    assert keeping.turn(16.1, Renewed(16)) == [Do.RESUME]
    assert keeping.acts_until == 28


def test_a_renewal_without_an_answer_is_aborted_once():
    keeping = Keeping(15, sent=0)
    assert keeping.turn(5) == [Do.RENEW]
    assert keeping.next() == 10
    assert keeping.turn(10) == [Do.ABORT]
    assert keeping.turn(11) == []
    assert keeping.turn(11.1, Failed("given up")) == []


def test_a_late_answer_does_not_restore_an_expired_lease():
    keeping = Keeping(15, sent=0)
    assert keeping.turn(5) == [Do.RENEW]
    assert keeping.turn(14) == [Do.CANCEL, Do.ABORT]
    assert keeping.turn(15) == [Do.END]
    assert keeping.turn(18.5, Renewed(5)) == [Do.RENEW]
    assert keeping.state == "over"


def test_after_a_suspension_of_the_machine_the_lease_has_expired_and_bodies_get_a_moment_to_end():
    keeping = Keeping(15, sent=0)
    assert keeping.turn(3600) == [Do.CANCEL, Do.RENEW]
    assert keeping.next() == 3601
    assert keeping.turn(3601) == [Do.END]


def test_a_holder_whose_lease_was_taken_stops_and_its_bodies_get_a_moment_to_end():
    keeping = Keeping(15, sent=0)
    keeping.turn(5)
    assert keeping.turn(5.1, Taken("another")) == [Do.STOP, Do.CANCEL]
    assert keeping.next() == 8.1
    assert keeping.turn(8.1) == [Do.END]
    assert keeping.next() == float("inf")


def test_a_holder_that_finds_the_store_damaged_at_a_renewal_stops():
    keeping = Keeping(15, sent=0)
    keeping.turn(5)
    assert keeping.turn(5.1, Failed("the file is damaged", damaged=True)) == [Do.STOP]
    assert keeping.why == "the file is damaged"


def test_an_engine_that_asks_is_notified_that_the_lease_is_good_without_a_previous_lapse():
    keeping = Keeping(15, sent=0)
    assert keeping.turn(1, Asked()) == [Do.RESUME]
    assert keeping.turn(13, Asked()) == [Do.CANCEL, Do.RENEW]
    assert keeping.turn(13.1, Renewed(13)) == [Do.RESUME]


# Live and dead holders.


def test_a_process_is_alive_while_it_holds_its_lease():
    me = this_process()
    assert is_alive(me) is False
    begins(me)
    assert is_alive(me) is True
    ends(me)
    assert is_alive(me) is False


def test_an_ended_process_is_not_alive_and_one_on_another_machine_is_unknown():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = this_process()
    started = int(Path(f"/proc/{child.pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    other = msgspec.structs.replace(mine, id="x", pid=child.pid, started=started)
    assert is_alive(other) is True
    assert is_alive(msgspec.structs.replace(other, started=started + 1)) is False
    child.kill()
    child.communicate()
    assert is_alive(other) is False
    assert is_alive(msgspec.structs.replace(other, machine="another")) is None
    assert is_alive(msgspec.structs.replace(other, machine="another", lock="1:2"), "1:2") is False


SOMEBODY = Holder("x", "elsewhere", 1)


@pytest.mark.parametrize(
    ("lease", "alive", "patient", "verdict"),
    [
        (None, None, True, Free()),
        (Lease(None, 3, None, -100.0), None, True, Free()),
        (Lease(SOMEBODY, 3, None, -0.1), True, True, Free()),
        (Lease(SOMEBODY, 3, None, 7.0), False, True, Free()),
        (Lease(SOMEBODY, 3, None, 7.0), True, True, Refused(SOMEBODY, 7.0)),
        (Lease(SOMEBODY, 3, None, 7.0), None, True, Wait(7.0, SOMEBODY)),
        (Lease(SOMEBODY, 3, None, 7.0), None, False, Refused(SOMEBODY, 7.0)),
    ],
)
def test_a_lease_can_be_taken_if_it_is_free_has_expired_or_its_holder_has_died(
    lease: Lease | None, alive: bool | None, patient: bool, verdict: object
):
    assert may_take(lease, lambda holder: alive, patient=patient) == verdict


# In the store.


@pytest.fixture
async def database(url: str):
    database = DatabaseManager(url)
    await database.open()
    metadata.create_all(database.engine)
    yield database
    await database.close()


async def test_a_term_is_higher_than_any_previous_one_and_only_its_holder_renews_it(
    database: DatabaseManager,
):
    leases = Leases(database.kind, lambda: 1000.0)
    ann, bob = Holder("ann"), Holder("bob")

    async def call(function: Callable[..., object], *arguments: object) -> object:
        return await database.run(lambda connection: function(connection.connection.cursor(), *arguments))

    assert (await call(leases.look, ENGINE)).holder is None
    assert await call(leases.acquire, ENGINE, ann, 15) == 1
    held = await call(leases.read, ENGINE)
    assert (held.holder, held.term) == (ann, 1)
    assert 10 < held.left <= 15
    assert await call(leases.renew, ENGINE, ann, 1, 30)
    assert 20 < (await call(leases.read, ENGINE)).left <= 30
    assert not await call(leases.renew, ENGINE, bob, 1, 15)
    assert not await call(leases.renew, ENGINE, ann, 2, 15)
    assert await call(leases.acquire, ENGINE, bob, 15) == 2
    assert not await call(leases.renew, ENGINE, ann, 1, 15)
    assert not await call(leases.release, ENGINE, ann, 1)
    assert await call(leases.release, ENGINE, bob, 2)
    assert not (await call(leases.read, ENGINE)).is_held
    assert await call(leases.acquire, ENGINE, ann, 15) == 3


async def opened(url: str, ttl: float = 15) -> SqlStore:
    store = SqlStore(url, lease_ttl=ttl)
    stored: Stored = await store.open("epoch", 3, 0.0)
    assert stored.epoch == "epoch"
    return store


def row(path: Path) -> tuple[str | None, int, float]:
    connection = sqlite3.connect(path)
    [found] = connection.execute("SELECT holder, term, expires_at FROM leases").fetchall()
    connection.close()
    return found


async def test_a_clean_shutdown_releases_the_lease_and_the_next_one_has_a_higher_term(tmp_path: Path):
    for term in (1, 2):
        store = await opened(f"sqlite:///{tmp_path}/x.db")
        holder, found, _ = row(tmp_path / "x.db")
        assert found == term
        assert f'"pid":{os.getpid()}' in (holder or "")
        await store.close()
        assert row(tmp_path / "x.db")[0] is None


async def test_a_lease_is_renewed_while_the_event_loop_is_blocked(tmp_path: Path):
    store = await opened(f"sqlite:///{tmp_path}/x.db", ttl=1.5)
    _, _, before = row(tmp_path / "x.db")
    subprocess.run(["sleep", "2"], check=True)  # noqa: ASYNC221  # blocking it is the matter
    assert store.lease is not None
    assert store.lease.is_good()
    assert row(tmp_path / "x.db")[2] > before + 1
    await store.close()


async def hold(url: str, ttl: float) -> "subprocess.Popen[bytes]":
    def start() -> "subprocess.Popen[bytes]":
        process = subprocess.Popen([sys.executable, "-c", HOLD, url, str(ttl)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process

    return await trio.to_thread.run_sync(start)


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


async def test_a_second_engine_is_refused_even_if_the_lock_file_was_deleted(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/x.db"
    process = await hold(url, 15)
    (tmp_path / "x.db.lock").unlink()
    store = SqlStore(url)
    with pytest.raises(Conflict, match=rf"pid {process.pid} on .*, whose lease on the store expires in"):
        await store.open("epoch", 3, 0.0)
    await store.close()
    end(process)
    (tmp_path / "x.db.lock").unlink()
    with trio.fail_after(10):
        await (await opened(url)).close()  # the holder has died, so there is no wait


async def test_a_second_engine_in_the_same_process_is_refused_even_if_the_lock_file_was_deleted(
    tmp_path: Path,
):
    url = f"sqlite:///{tmp_path}/x.db"
    first, second = await opened(url), SqlStore(url)
    (tmp_path / "x.db.lock").unlink()
    with pytest.raises(Conflict, match=f"pid {os.getpid()} on "):
        await second.open("epoch", 3, 0.0)
    await second.close()
    await first.close()
    await (await opened(url)).close()


async def test_a_winner_of_an_election_is_refused_while_an_engine_outside_the_cluster_has_the_store(
    postgresql: Server,
):
    url = postgresql.fresh_database()
    await migrating.upgrade(url)
    single = await hold(url, 60)
    election = Election(this_process("elected"), 7, 0.0, Unused())
    elected = SqlStore(url, member="http://127.0.0.1:1", election=election, lease_ttl=60)
    with pytest.raises(Conflict, match=rf"pid {single.pid} on .*, whose lease on the store expires in"):
        await elected.open("epoch", 3, 0.0)
    await elected.close()
    end(single)


class Unused:
    """Renewals of a lease that is not taken."""

    def renew(self, sent: float) -> Told:
        raise AssertionError("the lease is not taken")

    def release(self) -> str | None:
        return None

    def abort(self) -> None:
        """Nothing is in progress."""


async def test_a_commit_that_an_engine_has_left_open_does_not_keep_the_next_one_waiting(postgresql: Server):
    url = postgresql.fresh_database()
    await migrating.upgrade(url)
    first = SqlStore(url, member="http://127.0.0.1:1", lease_ttl=60)
    await first.open("epoch", 3, 0.0)
    await first.close()
    paused = connect(parse_addresses(url))
    with suppress(psycopg.OperationalError), paused, paused.pipeline():
        paused.execute("UPDATE meta SET last_seq = 1")
        paused.cursor().executemany("UPDATE meta SET last_place = %s", [(1,), (2,)])
        second = SqlStore(url, member="http://127.0.0.1:2", lease_ttl=60)
        with trio.fail_after(20):
            stored = await second.open("epoch", 3, 0.0)
        assert stored.last_seq == 0
        await second.close()


async def test_the_lease_of_a_killed_process_is_taken_immediately(tmp_path: Path, postgresql: Server):
    server_url = postgresql.fresh_database()
    await migrating.upgrade(server_url)
    for url in (f"sqlite:///{tmp_path}/x.db", server_url):
        end(await hold(url, 60))
        with trio.fail_after(20):
            while True:  # a server detects it a moment later
                try:
                    store = await opened(url)
                except Conflict:
                    await trio.sleep(0.05)
                else:
                    break
        assert store.lease is not None
        assert store.lease.term == 2
        await store.close()


def claim(path: Path, seconds: float) -> None:
    """Give the lease to a holder on another machine."""
    connection = sqlite3.connect(path)
    sets = "holder = ?, term = term + 1, expires_at = (julianday('now') - 2440587.5) * 86400 + ?"
    connection.execute(f"UPDATE leases SET {sets}", (Holder("x", "elsewhere", 7, 1, "m").text(), seconds))
    connection.commit()
    connection.close()


async def test_an_engine_waits_for_the_expiry_of_a_lease_from_another_machine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    await (await opened(f"sqlite:///{tmp_path}/x.db")).close()
    claim(tmp_path / "x.db", 1.0)
    began = trio.current_time()
    store = await opened(f"sqlite:///{tmp_path}/x.db")
    assert trio.current_time() - began > 0.9
    assert "is leased to pid 7 on elsewhere, which may have died: waiting" in caplog.text
    assert row(tmp_path / "x.db")[1] == 3
    await store.close()


async def test_a_lease_from_another_machine_that_is_renewed_during_the_wait_is_refused(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/x.db"
    await (await opened(url)).close()
    claim(tmp_path / "x.db", 1.0)
    store = SqlStore(url)
    async with trio.open_nursery() as nursery:

        async def renew() -> None:
            await trio.sleep(0.5)
            claim(tmp_path / "x.db", 60)

        nursery.start_soon(renew)
        with pytest.raises(Conflict, match="pid 7 on elsewhere, whose lease on the store expires in"):
            await store.open("epoch", 3, 0.0)
    await store.close()


async def test_an_engine_that_has_lost_the_lease_cannot_commit(tmp_path: Path):
    store = await opened(f"sqlite:///{tmp_path}/x.db")
    await store.commit(Batch(0, [], {}, []))
    claim(tmp_path / "x.db", 60)
    with pytest.raises(StoreBroken, match="another engine has taken the store"):
        await store.commit(Batch(0, [], {}, []))
    await store.close()
    assert "elsewhere" in (row(tmp_path / "x.db")[0] or "")


async def test_a_file_with_two_hard_links_is_refused(tmp_path: Path):
    await (await opened(f"sqlite:///{tmp_path}/x.db")).close()
    os.link(tmp_path / "x.db", tmp_path / "y.db")
    store = SqlStore(f"sqlite:///{tmp_path}/y.db")
    with pytest.raises(StoreBroken, match="its file has 2 hard links"):
        await store.open("epoch", 3, 0.0)
    await store.close()


async def test_a_copy_of_an_open_store_can_be_opened_although_it_contains_the_lease(tmp_path: Path):
    store = await opened(f"sqlite:///{tmp_path}/x.db", ttl=1.5)
    for name in ("x.db", "x.db-wal", "x.db-shm"):
        shutil.copy(tmp_path / name, tmp_path / name.replace("x", "y", 1))
    copy = SqlStore(f"sqlite:///{tmp_path}/y.db")
    with pytest.raises(Conflict):  # it cannot be distinguished from the live holder
        await copy.open("epoch", 3, 0.0)
    await copy.close()
    await trio.sleep(1.5)
    await (await opened(f"sqlite:///{tmp_path}/y.db")).close()
    await store.close()


async def test_a_backup_contains_no_lease(tmp_path: Path):
    store = await opened(f"sqlite:///{tmp_path}/x.db")
    back_up(f"sqlite:///{tmp_path}/x.db", tmp_path / "y.db")
    await (await opened(f"sqlite:///{tmp_path}/y.db")).close()
    assert store.lease is not None
    assert row(tmp_path / "x.db")[0] is not None
    await store.close()


async def test_a_command_that_needs_the_store_alone_is_refused_while_an_engine_has_the_lease(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/x.db"
    await (await opened(url)).close()
    assert await migrating.prune_all(url, Retention(keep_runs=1), 0.0) == 0
    claim(tmp_path / "x.db", 60)
    with pytest.raises(Conflict, match="pid 7 on elsewhere, whose lease on the store expires in"):
        await migrating.prune_all(url, Retention(keep_runs=1), 0.0)


async def test_renewals_do_not_lock_the_database_for_concurrent_writes(tmp_path: Path):
    store = await opened(f"sqlite:///{tmp_path}/x.db?synchronous=normal", ttl=0.3)
    until = trio.current_time() + 2
    while trio.current_time() < until:
        await store.commit(Batch(0, [], {}, []))
    assert store.lease is not None
    assert store.lease.is_good()
    await store.close()
