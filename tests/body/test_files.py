"""Files that a body writes: complete or not at all, in its handle's folder; and what a cancel does to
them."""

import os

import pytest
import trio
import trio.testing

from greenroom import Jobs, Run
from greenroom.errors import RunAbandoned, RunCancelled, RunFailed, RunTimedOut
from tests.support import open_engine

settled = trio.testing.wait_all_tasks_blocked


def with_body(body, **options):
    """A registry with one job, `work`."""
    jobs = Jobs()
    jobs.job("work", **options)(body)
    return jobs


def files_below(folder):
    """The files below a folder, with their contents."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


async def write(run, path, data=b"data", **options):
    async with run.open_file(path, **options) as f:
        await f.write(data)


async def write_half(run, path, error, **options):
    async with run.open_file(path, **options) as f:
        await f.write(b"half")
        raise error


async def run_once(body, data_dir, handle="alice", **options):
    """Execute one run of `body`, and return its id."""
    async with open_engine(with_body(body), store="memory:", data_dir=data_dir, **options) as engine:
        ticket = await engine.submit("work", handle=handle)
        await ticket.result()
        return ticket.id


# Writing.


async def test_a_file_grows_as_a_part_and_gets_its_name_when_the_block_ends(autojump_clock, tmp_path):
    async def body(run: Run):
        async with run.open_file("a/b.jpg") as f:
            await f.write(b"one ")
            await trio.sleep(10)
            await f.write(b"two")

    async with open_engine(with_body(body), store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(5)
        assert list(files_below(tmp_path)) == [f"alice/a/b.jpg.{ticket.id}.part"]
        await ticket.result()
        assert files_below(tmp_path) == {"alice/a/b.jpg": b"one two"}


async def test_write_returns_the_number_of_bytes(autojump_clock, tmp_path):
    async def body(run: Run):
        async with run.open_file("b.jpg") as f:
            assert await f.write(b"four") == 4

    await run_once(body, tmp_path)


async def test_an_empty_file_is_a_file(autojump_clock, tmp_path):
    async def body(run: Run):
        async with run.open_file("empty"):
            pass

    await run_once(body, tmp_path)
    assert files_below(tmp_path) == {"alice/empty": b""}


async def test_several_files_can_be_open_at_the_same_time(autojump_clock, tmp_path):
    async def body(run: Run):
        async with run.open_file("a") as a, run.open_file("b") as b:
            await b.write(b"in b")
            await a.write(b"in a")

    await run_once(body, tmp_path)
    assert files_below(tmp_path) == {"alice/a": b"in a", "alice/b": b"in b"}


async def test_an_existing_file_is_refused_and_stays(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, "b.jpg", b"old")
        with pytest.raises(FileExistsError, match="overwrite"):
            await write(run, "b.jpg", b"new")

    await run_once(body, tmp_path)
    assert files_below(tmp_path) == {"alice/b.jpg": b"old"}


async def test_a_refused_file_fails_a_run_that_does_not_catch_it(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, "b.jpg", b"old")
        await write(run, "b.jpg", b"new")

    with pytest.raises(RunFailed, match=r"b\.jpg"):
        await run_once(body, tmp_path)


async def test_overwrite_replaces_an_existing_file_only_when_the_block_ends_well(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, "b.jpg", b"old")
        with pytest.raises(ConnectionError):
            await write_half(run, "b.jpg", ConnectionError, overwrite=True)
        assert (tmp_path / "alice/b.jpg").read_bytes() == b"old"
        await write(run, "b.jpg", b"new", overwrite=True)

    await run_once(body, tmp_path)
    assert files_below(tmp_path) == {"alice/b.jpg": b"new"}


async def test_a_file_that_was_created_meanwhile_is_not_changed(autojump_clock, tmp_path):
    async def body(run: Run):
        ours = run.open_file("b.jpg")
        f = await ours.__aenter__()
        await f.write(b"ours")
        (tmp_path / "alice/b.jpg").write_bytes(b"theirs")
        with pytest.raises(FileExistsError):
            await ours.__aexit__(None, None, None)

    await run_once(body, tmp_path)
    assert files_below(tmp_path) == {"alice/b.jpg": b"theirs"}


async def test_a_file_that_is_being_written_can_not_be_opened_again(autojump_clock, tmp_path):
    async def body(run: Run):
        async with run.open_file("b.jpg") as f:
            with pytest.raises(FileExistsError):
                await write(run, "b.jpg", b"second")
            await f.write(b"first")

    await run_once(body, tmp_path)
    assert files_below(tmp_path) == {"alice/b.jpg": b"first"}


# No path leaves the folder.


@pytest.mark.parametrize(
    "path",
    ["", ".", "..", "/", "/etc/passwd", "../bob/x", "a/../../x", "a/..", "../alice/x", "a\0b", "~/../../x"],
)
async def test_a_path_that_would_leave_the_folder_is_refused(path, autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, path)

    data_dir = tmp_path / "data"
    with pytest.raises(RunFailed, match="Invalid"):
        await run_once(body, data_dir)
    assert files_below(tmp_path) == {}


async def test_a_link_to_a_folder_outside_is_not_followed(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, "link/x")

    data_dir, outside = tmp_path / "data", tmp_path / "outside"
    (data_dir / "alice").mkdir(parents=True)
    outside.mkdir()
    (data_dir / "alice" / "link").symlink_to(outside)
    with pytest.raises(RunFailed, match="Invalid"):
        await run_once(body, data_dir)
    assert list(outside.iterdir()) == []


async def test_no_folder_is_made_behind_a_link_to_the_outside(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, "link/new/deep/x")

    data_dir, outside = tmp_path / "data", tmp_path / "outside"
    (data_dir / "alice").mkdir(parents=True)
    outside.mkdir()
    (data_dir / "alice" / "link").symlink_to(outside)
    with pytest.raises(RunFailed, match="Invalid"):
        await run_once(body, data_dir)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("exists", [True, False])
async def test_a_link_to_a_file_outside_is_replaced_and_never_written_through(
    exists, autojump_clock, tmp_path
):
    async def body(run: Run):
        await write(run, "link", b"new", overwrite=True)

    data_dir, outside = tmp_path / "data", tmp_path / "outside.txt"
    (data_dir / "alice").mkdir(parents=True)
    if exists:
        outside.write_bytes(b"untouched")
    (data_dir / "alice" / "link").symlink_to(outside)
    await run_once(body, data_dir)
    assert (data_dir / "alice" / "link").read_bytes() == b"new"
    assert not (data_dir / "alice" / "link").is_symlink()
    assert outside.exists() == exists
    assert not exists or outside.read_bytes() == b"untouched"


async def test_a_link_within_the_folder_can_be_used(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, "link/x")

    (tmp_path / "alice" / "real").mkdir(parents=True)
    (tmp_path / "alice" / "link").symlink_to("real")
    await run_once(body, tmp_path)
    assert (tmp_path / "alice" / "real" / "x").read_bytes() == b"data"


ODD_HANDLES = [
    "..",
    ".",
    "...",
    ".hidden",
    "a/b",
    "../x",
    "/etc",
    "a%2Fb",
    "%2E",
    "session:main",
    "tilde~",
    "日本",
    "x" * 256,
    "x" * 255 + "y",
    "日" * 256,
    "back\\slash",
    "a b",
    "*?[x]",
    "A",
    "a",
]


async def test_each_handle_has_a_separate_folder_directly_below_data_dir(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, "x", run.handle.encode())

    data_dir = tmp_path / "deep" / "data"
    async with open_engine(with_body(body), store="memory:", data_dir=data_dir) as engine:
        for handle in ODD_HANDLES:
            await (await engine.submit("work", handle=handle)).result()
    written = files_below(tmp_path)
    assert sorted(data.decode() for data in written.values()) == sorted(ODD_HANDLES)
    assert all(path.split(os.sep)[:2] == ["deep", "data"] for path in written)
    assert all(len(path.split(os.sep)) == 4 for path in written)


async def test_a_handle_that_ends_its_folder_name_early_still_finds_its_file_to_delete(
    autojump_clock, tmp_path
):
    async def body(run: Run):
        await write(run, "x[1]*.txt")
        await trio.sleep_forever()

    async with open_engine(with_body(body), store="memory:", data_dir=tmp_path) as engine:
        for handle in ("*?[x]", "a/b", "x" * 256):
            ticket = await engine.submit("work", handle=handle)
            await settled()
            await ticket.cancel(files="delete")
            await ticket.wait()
    assert files_below(tmp_path) == {}


# A block that fails leaves nothing.


async def writing_for_long(run: Run):
    async with run.open_file("a/b.jpg") as f:
        await f.write(b"half")
        await trio.sleep_forever()


async def test_a_cancel_leaves_no_part(autojump_clock, tmp_path):
    async with open_engine(with_body(writing_for_long), store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        assert len(files_below(tmp_path)) == 1
        await ticket.cancel()
        with pytest.raises(RunCancelled):
            await ticket.result()
        assert files_below(tmp_path) == {}


async def test_a_timeout_leaves_no_part(autojump_clock, tmp_path):
    async with open_engine(with_body(writing_for_long), store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice", run_timeout=60)
        with pytest.raises(RunTimedOut):
            await ticket.result()
        assert files_below(tmp_path) == {}


async def test_a_failure_leaves_no_part_and_the_next_attempt_can_write_the_file(autojump_clock, tmp_path):
    seen = []

    async def body(run: Run):
        seen.append(files_below(tmp_path))
        async with run.open_file("b.jpg") as f:
            await f.write(b"%d" % run.attempt)
            if run.attempt == 1:
                raise ConnectionError

    jobs = with_body(body, max_attempts=2)
    async with open_engine(jobs, store="memory:", data_dir=tmp_path) as engine:
        await (await engine.submit("work", handle="alice")).result()
    assert seen == [{}, {}]
    assert files_below(tmp_path) == {"alice/b.jpg": b"2"}


async def test_leaving_the_engine_leaves_no_part(autojump_clock, tmp_path):
    async with open_engine(with_body(writing_for_long), store="memory:", data_dir=tmp_path) as engine:
        await engine.submit("work", handle="alice")
        await settled()
    assert files_below(tmp_path) == {}


async def test_an_abandoned_body_leaves_no_part_and_can_no_longer_write(autojump_clock, tmp_path):
    refused = []

    async def body(run: Run):
        with trio.CancelScope(shield=True):
            try:
                async with run.open_file("b.jpg") as f:
                    await f.write(b"half")
                    await trio.sleep(100)
                    try:
                        await f.write(b"the rest")
                    except RunAbandoned:
                        refused.append("write")
            except RunAbandoned:
                refused.append("the end of the block")

    async with open_engine(with_body(body), store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        await ticket.wait()
        assert files_below(tmp_path) == {}
        await trio.sleep(200)
        assert files_below(tmp_path) == {}
    assert refused == ["write", "the end of the block"]


async def test_files_of_a_released_handle_are_not_touched_by_the_body_that_was_abandoned(
    autojump_clock, tmp_path
):
    async def body(run: Run, params: dict):
        with trio.CancelScope(shield=params["shield"]):
            async with run.open_file("b.jpg", overwrite=True) as f:
                await f.write(params["data"].encode())
                await trio.sleep(params["seconds"])

    async with open_engine(with_body(body), store="memory:", data_dir=tmp_path) as engine:
        old = {"shield": True, "data": "old", "seconds": 100}
        first = await engine.submit("work", handle="alice", params=old)
        await settled()
        await first.cancel()
        await first.wait()
        await engine.release_handle("alice")
        new = {"shield": False, "data": "new", "seconds": 1}
        await (await engine.submit("work", handle="alice", params=new)).result()
        await trio.sleep(200)
    assert files_below(tmp_path) == {"alice/b.jpg": b"new"}


async def test_an_error_in_the_block_is_raised_unchanged(autojump_clock, tmp_path):
    async def body(run: Run):
        with pytest.raises(ConnectionError, match="no route"):
            async with run.open_file("b.jpg"):
                raise ConnectionError("no route")
        return "went on"

    await run_once(body, tmp_path)
    assert files_below(tmp_path) == {}


# What a cancel does with finished files.


async def finishing_two(run: Run):
    await write(run, "one", b"1")
    await write(run, "folder/two", b"2")
    async with run.open_file("three") as f:
        await f.write(b"half")
        await trio.sleep_forever()


async def test_a_cancel_keeps_the_finished_files_by_default(autojump_clock, tmp_path):
    for options in ({}, {"files": "keep"}):
        data_dir = tmp_path / str(len(options))
        async with open_engine(with_body(finishing_two), store="memory:", data_dir=data_dir) as engine:
            ticket = await engine.submit("work", handle="alice")
            await settled()
            await ticket.cancel(**options)
            await ticket.wait()
            assert files_below(data_dir) == {"alice/one": b"1", "alice/folder/two": b"2"}


async def test_a_cancel_with_delete_removes_exactly_what_the_run_had_finished(autojump_clock, tmp_path):
    async def earlier(run: Run):
        await write(run, "earlier", b"e")
        await write(run, "folder/earlier", b"e")

    jobs = with_body(finishing_two)
    jobs.job("earlier")(earlier)
    async with open_engine(jobs, store="memory:", data_dir=tmp_path) as engine:
        for handle in ("alice", "bob"):
            await (await engine.submit("earlier", handle=handle)).result()
        before = files_below(tmp_path)
        ticket = await engine.submit("work", handle="alice")
        await settled()
        assert len(files_below(tmp_path)) == len(before) + 3
        await ticket.cancel(files="delete")
        with pytest.raises(RunCancelled):
            await ticket.result()
        assert files_below(tmp_path) == before


async def test_the_files_are_deleted_when_the_end_is_visible(autojump_clock, tmp_path):
    async with open_engine(with_body(finishing_two), store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        events = engine.events(filter={"runs": [ticket.id]})
        await ticket.cancel(files="delete")
        with trio.fail_after(60):
            while (await anext(events)).to != "cancelled":
                pass
        assert files_below(tmp_path) == {}


async def test_files_of_earlier_attempts_are_deleted_too(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, f"of attempt {run.attempt}")
        if run.attempt == 1:
            raise ConnectionError
        await trio.sleep_forever()

    jobs = with_body(body, max_attempts=2, backoff=1)
    async with open_engine(jobs, store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(5)
        assert len(files_below(tmp_path)) == 2
        await ticket.cancel(files="delete")
        await ticket.wait()
        assert files_below(tmp_path) == {}


async def test_the_files_of_a_run_that_waits_for_its_next_attempt_are_deleted(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, "finished")
        raise ConnectionError

    jobs = with_body(body, max_attempts=2, backoff=60)
    async with open_engine(jobs, store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel(files="delete")
        await ticket.wait()
        assert files_below(tmp_path) == {}


async def test_the_files_of_a_suspended_run_are_deleted(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, "finished")
        await run.sleep(1000)

    async with open_engine(with_body(body), store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel(files="delete")
        await ticket.wait()
        assert files_below(tmp_path) == {}


async def test_the_files_of_an_abandoned_run_are_deleted(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, "finished")
        with trio.CancelScope(shield=True):
            await trio.sleep(100)

    async with open_engine(with_body(body), store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel(files="delete")
        await ticket.wait()
        assert (await engine.get_run(ticket.id)).reason == "abandoned"
        assert files_below(tmp_path) == {}


async def test_a_finished_file_that_was_already_deleted_is_no_error(autojump_clock, tmp_path):
    async with open_engine(with_body(finishing_two), store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        (tmp_path / "alice" / "one").unlink()
        await ticket.cancel(files="delete")
        with pytest.raises(RunCancelled):
            await ticket.result()
        assert files_below(tmp_path) == {}


async def test_the_other_files_are_deleted_if_one_can_not_be_deleted(autojump_clock, tmp_path):
    async with open_engine(with_body(finishing_two), store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        (tmp_path / "alice" / "one").unlink()
        (tmp_path / "alice" / "one").mkdir()
        await ticket.cancel(files="delete")
        with pytest.raises(RunCancelled):
            await ticket.result()
        assert files_below(tmp_path) == {}


async def test_cancelling_a_queued_run_touches_no_file(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, "x")

    data_dir = tmp_path / "data"
    async with open_engine(with_body(body), store="memory:", data_dir=data_dir, max_concurrent=0) as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.cancel(files="delete")
        await ticket.wait()
        assert not data_dir.exists()


async def test_a_run_that_fails_or_times_out_keeps_its_finished_files(autojump_clock, tmp_path):
    async def body(run: Run):
        await write(run, "finished")
        await trio.sleep(50)
        raise ConnectionError

    async with open_engine(with_body(body), store="memory:", data_dir=tmp_path) as engine:
        for handle, limit in (("fails", 100), ("times out", 10)):
            await (await engine.submit("work", handle=handle, run_timeout=limit)).wait(60)
    assert sorted(files_below(tmp_path)) == ["fails/finished", "times out/finished"]
