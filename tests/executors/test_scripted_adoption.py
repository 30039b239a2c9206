"""Executors and their bodies after a restart of the engine."""

import msgspec
import pytest
import trio

from greenroom import Jobs
from greenroom.errors import Conflict
from greenroom.protocol.states import Status

from .scripted import live
from .worlds import TTL, Lives, world


@pytest.fixture
def lives(tmp_path):
    return Lives(tmp_path)


def lives_of(lives, end):
    return lives.clean if end == "shutdown" else lives.crash


@pytest.mark.parametrize("end", ["shutdown", "crash"])
async def test_a_running_body_is_adopted_without_a_lost_attempt(autojump_clock, lives, end):
    async with lives_of(lives, end)() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
    async with lives.clean() as home:
        assert (await home.run(ticket)).status is Status.RUNNING
        answer = await home.attach(executor, session=executor.session, received=7, bodies=[live(body)])
        assert not answer["resumed"]
        assert [each["run"] for each in answer["bodies"]] == [ticket.id]
        assert (await executor.ask(body, "log", text="still here", level="info")).get("code") is None
        await executor.end(body, value="kept")
        run = await home.until_status(ticket, Status.SUCCEEDED)
        assert (run.attempt, run.result) == (1, "kept")


async def test_an_end_that_was_not_settled_is_repeated_once(autojump_clock, lives):
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
    async with lives.clean() as home:
        await home.attach(executor, bodies=[live(body)])
        await executor.end(body, value=1)
        await executor.end(body, value=2)
        assert (await home.run(ticket)).result == 1


@pytest.mark.parametrize("wrong", [{"fence": 1}, {"run": "another"}])
async def test_a_body_with_another_fence_or_run_is_not_adopted(autojump_clock, lives, wrong):
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "resumable")
    async with lives.clean() as home:
        answer = await home.attach(executor, bodies=[live(body) | wrong])
        assert answer.get("bodies") is None
        await trio.sleep(TTL - 1)
        assert (await home.run(ticket)).status is Status.RUNNING
        again = await executor.receive("execute")
        assert (again["attempt"], again["fence"] > body["fence"]) == (1, True)


@pytest.mark.parametrize(("job", "status"), [("once", Status.FAILED), ("resumable", Status.SUSPENDED)])
async def test_a_body_whose_executor_does_not_attach_is_lost_at_the_ttl(autojump_clock, lives, job, status):
    async with lives.crash() as home:
        ticket, _body = await home.begin(await home.executor(), job)
    async with lives.clean() as home:
        await trio.sleep(TTL - 0.1)
        assert (await home.run(ticket)).status is Status.RUNNING
        await trio.sleep(0.2)
        assert (await home.run(ticket)).status is status
        assert (await home.engine.snapshot()).executors == {}


async def test_an_executor_that_has_not_attached_since_the_restart_is_listed_until_it_is_lost(
    autojump_clock, lives, caplog
):
    async with lives.crash() as home:
        await home.begin(await home.executor(slots=2, labels=["gpu"]), "resumable")
        [before] = await home.engine.executors.list()
    async with lives.clean() as home:
        [awaited] = await home.engine.executors.list()
        assert awaited == msgspec.structs.replace(before, status="disconnected")
        assert awaited.bodies == 1
        with pytest.raises(Conflict, match='"e1" has not attached since the engine\'s restart'):
            await home.engine.executors.drain("e1")
        await trio.sleep(TTL + 0.1)
        assert await home.engine.executors.list() == []
        assert home.engine.executors.lost == 1
    assert (
        f"executor e1 is lost: it did not attach within {TTL:g} s after the engine's restart" in caplog.text
    )


async def test_an_executor_without_bodies_that_does_not_attach_after_a_restart_does_not_count_as_lost(
    autojump_clock, lives
):
    async with lives.crash() as home:
        await home.executor()
    async with lives.clean() as home:
        await trio.sleep(TTL + 0.1)
        assert await home.engine.executors.list() == []
        assert home.engine.executors.lost == 0


async def test_another_process_under_the_id_does_not_end_the_wait_for_the_first(autojump_clock, lives):
    async with lives.crash() as home:
        ticket, _body = await home.begin(await home.executor(start="p1"), "resumable")
    async with lives.clean() as home:
        second = await home.executor(start="p2")
        await trio.sleep(TTL - 1)
        assert second.has("execute") == 0
        assert (await second.receive("execute"))["run"] == ticket.id


@pytest.mark.parametrize("waiting_for", ["time", "message", "child"])
async def test_a_body_that_waits_without_a_slot_is_adopted_and_resumes(autojump_clock, lives, waiting_for):
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
        await executor.ask(body, "release_slot", waiting_for=waiting_for)
    async with lives.clean() as home:
        assert (await home.run(ticket)).waiting_for == waiting_for
        await home.attach(executor, bodies=[live(body)])
        assert (await executor.ask(body, "release_slot", waiting_for=waiting_for)).get("code") is None
        assert (await home.run(ticket)).waiting_for == waiting_for
        await executor.ask(body, "take_slot")
        assert (await home.run(ticket)).status is Status.RUNNING
        await executor.end(body, value=1)
        assert (await home.run(ticket)).attempt == 1


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("waiting_for", ["time", "message", "child"])
async def test_the_next_wait_of_an_adopted_body_releases_its_slot(
    autojump_clock, lives, waiting_for, repeats
):
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
        await executor.ask(body, "release_slot", waiting_for=waiting_for)
    async with lives.clean(max_concurrent=1) as home:
        await home.attach(executor, bodies=[live(body)])
        if repeats:  # else it had received the answer
            await executor.ask(body, "release_slot", waiting_for=waiting_for)
        await executor.ask(body, "take_slot")
        await executor.ask(body, "release_slot", waiting_for=waiting_for)
        assert (await home.run(ticket)).status is Status.SUSPENDED
        _other, elsewhere = await home.begin(executor, "work", handle="other")
        await executor.end(elsewhere)


@pytest.mark.parametrize("repeats", [True, False])
async def test_the_next_question_of_an_adopted_body_releases_its_slot(autojump_clock, lives, repeats):
    asking = {"data": "Deploy?", "timeout": None, "release_slot": True}
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
        call = await executor.call(body, "interrupt", key="1", **asking)
        await executor.answer(call)
    async with lives.clean() as home:
        await home.attach(executor, bodies=[live(body)])
        if repeats:
            await executor.send(executor.calling(body, call, "interrupt", key="1", **asking))
            await executor.answer(call)
        else:
            await executor.report(body, "withdraw", key="1")
        await executor.ask(body, "take_slot")
        assert (await executor.ask(body, "interrupt", key="2", **asking))["value"] is True
        assert (await home.run(ticket)).status is Status.SUSPENDED


async def test_the_next_body_of_an_adopted_one_that_waited_releases_its_slot(autojump_clock, lives):
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "resumable")
        await executor.ask(body, "release_slot", waiting_for="message")
        await home.engine.inject(ticket.id, "hello")
    async with lives.clean() as home:
        await home.attach(executor, bodies=[live(body)])
        await executor.end(body, "lapsed")
        following = await executor.receive("execute")
        await executor.ask(following, "release_slot", waiting_for="message")
        assert (await home.run(ticket)).status is Status.SUSPENDED


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("request_", ["release_slot", "interrupt"])
async def test_a_wait_that_is_repeated_in_a_new_session_is_not_a_second_wait(
    autojump_clock, request_, answered
):
    asking = {"waiting_for": "message"}
    if request_ == "interrupt":
        asking = {"data": "Deploy?", "timeout": None, "key": "1", "release_slot": True}
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
        call = await executor.call(body, request_, **asking)
        if answered:
            await executor.answer(call)
        assert not (await home.attach(executor, bodies=[live(body)]))["resumed"]
        await executor.send(executor.calling(body, call, request_, **asking))
        assert (await executor.answer(call)).get("code") is None
        assert (await home.run(ticket)).status is Status.SUSPENDED
        if request_ == "interrupt":
            [interrupt] = (await home.engine.snapshot()).interrupts
            await home.engine.answer(interrupt, "yes")
            assert (await executor.answer(call))["value"] == "yes"
        await executor.ask(body, "take_slot")
        await executor.end(body, value=1)
        assert await ticket.result() == 1


@pytest.mark.parametrize("release", [True, False])
async def test_an_open_interrupt_of_an_adopted_body_is_not_opened_twice(autojump_clock, lives, release):
    asking = {"data": "Deploy?", "timeout": 1000, "key": "1", "release_slot": release}
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
        call = await executor.call(body, "interrupt", **asking)
        assert (await executor.answer(call)).get("value", False) == release
    async with lives.clean() as home:
        await home.attach(executor, bodies=[live(body)])
        await executor.send(executor.calling(body, call, "interrupt", **asking))
        opened = await executor.answer(call)
        assert (opened["more"], opened.get("value", False)) == (True, release)
        [interrupt] = (await home.engine.snapshot()).interrupts
        await home.engine.answer(interrupt, "yes")
        assert (await executor.answer(call))["value"] == "yes"
        if release:
            await executor.ask(body, "take_slot")
        await executor.end(body)
        opened = [e for e in await home.engine.history(ticket.id) if e.type == "interrupt_opened"]
        assert len(opened) == 1


async def test_an_adopted_body_keeps_its_phases_and_its_messages(autojump_clock, lives):
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
        await home.engine.inject(ticket.id, "first")
        first = await executor.receive("message")
        await home.engine.inject(ticket.id, "second")
        second = await executor.receive("message")
        await executor.report(body, "took", seq=first["seq"])
        await executor.ask(body, "phase", name="compacting", value=True)
    async with lives.clean() as home:
        await home.attach(executor, bodies=[live(body, received=first["seq"])])
        assert (await home.run(ticket)).compacting
        assert await executor.receive("message") == second
        assert executor.has("message") == 0
        with pytest.raises(Exception, match="compact"):
            await home.engine.inject(ticket.id, "third")
        await executor.ask(body, "phase", name="compacting", value=False)
        await home.engine.inject(ticket.id, "third")
        assert (await executor.receive("message"))["value"] == "third"


async def test_a_run_that_is_being_cancelled_is_adopted_and_ends_cancelled(autojump_clock, lives):
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
        await ticket.cancel()
    async with lives.clean() as home:
        await home.attach(executor, bodies=[live(body)])
        assert (await executor.receive("cancel"))["stop"]
        await executor.end(body, "stopped")
        assert (await home.until_status(ticket, Status.CANCELLED)).reason == "cancelled"


async def test_a_body_that_the_last_engine_had_stopped_is_executed_again(autojump_clock, lives):
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "resumable")
        await executor.send({"type": "draining", "now": True})
        await executor.receive("cancel")
    async with lives.clean() as home:
        await home.attach(executor, bodies=[live(body)], draining=True)
        await executor.end(body, "stopped")
        elsewhere = await home.executor("e2")
        again = await elsewhere.receive("execute")
        await elsewhere.end(again, value=1)
        assert (await home.run(ticket)).attempt == 1


async def test_a_deadline_that_passed_during_the_restart_ends_an_adopted_body(autojump_clock, lives):
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once", deadline=60)
    await trio.sleep(100)
    async with lives.clean() as home:
        await home.attach(executor, bodies=[live(body)])
        await executor.receive("cancel")
        await executor.end(body, "stopped")
        assert (await home.until_status(ticket, Status.TIMED_OUT)).reason == "deadline"


async def test_a_body_that_was_abandoned_before_it_is_adopted_is_closed(autojump_clock, lives):
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "stubborn", deadline=60)
    await trio.sleep(100)
    async with lives.clean() as home:
        assert (await home.until_status(ticket, Status.TIMED_OUT)).reason == "abandoned"
        await home.attach(executor, bodies=[live(body)])
        await executor.receive("close")
        assert (await executor.ask(body, "log", text="late", level="info"))["code"] == "abandoned"


async def test_a_handle_stays_taken_until_its_abandoned_body_has_ended(autojump_clock, lives):
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "stubborn")
        await ticket.cancel()
        await home.until_status(ticket, Status.CANCELLED)
    async with lives.clean() as home:
        answer = await home.attach(executor, bodies=[live(body)])
        assert [each["run"] for each in answer["bodies"]] == [ticket.id]
        await executor.receive("close")
        following = await home.engine.submit("work", handle="h", params={}, on_conflict="queue")
        await trio.sleep(10 * TTL)
        assert executor.has("execute") == 0
        assert (await executor.ask(body, "log", text="late", level="info"))["code"] == "abandoned"
        await executor.report(body, "progress", done=1, total=2)
        await executor.end(body, value="late")
        assert (await executor.receive("execute"))["run"] == following.id


async def test_the_handle_of_an_abandoned_body_is_free_when_its_executor_is_lost(autojump_clock, lives):
    async with lives.crash() as home:
        executor = await home.executor(start="p1")
        ticket, _body = await home.begin(executor, "stubborn")
        await ticket.cancel()
        await home.until_status(ticket, Status.CANCELLED)
    async with lives.clean() as home:
        second = await home.executor(start="p2")
        following = await home.engine.submit("work", handle="h", params={}, on_conflict="queue")
        await trio.sleep(TTL - 1)
        assert second.has("execute") == 0
        assert (await second.receive("execute"))["run"] == following.id


async def test_a_child_run_is_not_submitted_twice(autojump_clock, lives):
    calling = {"position": 1, "job": "work", "handle": "c", "params": {}}
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
        call = await executor.call(body, "call_child", **calling)
        child = (await executor.answer(call))["value"]
        of_child = await executor.receive("execute")
    async with lives.clean() as home:
        await home.attach(executor, bodies=[live(body), live(of_child)])
        await executor.send(executor.calling(body, call, "call_child", **calling))
        assert (await executor.answer(call))["value"] == child
        waits = await executor.call(body, "await_child", run=child)
        await executor.end(of_child, value="from the child")
        assert (await executor.answer(waits))["value"]["result"] == "from the child"
        await executor.end(body)
        await home.until_status(ticket, Status.SUCCEEDED)


async def test_an_announced_job_is_known_after_a_restart_before_any_executor_attaches(autojump_clock, lives):
    theirs = {"name": "theirs", "max_attempts": 5, "params": {"type": "object"}}
    async with lives.crash(Jobs()) as home:
        executor = await home.executor("e1", theirs)
        ticket, body = await home.begin(executor, "theirs")
        await executor.end(body, "raised", error="try again", retry_after=300)
        second, _body = await home.begin(executor, "theirs", handle="b")
    async with lives.clean(Jobs()) as home:
        await trio.sleep(TTL + 1)  # the first executor is lost
        assert not (await home.run(second)).ended
        other = await home.executor("e2", theirs)
        bodies = [await other.receive("execute") for _ in range(2)]
        assert [(body["run"], body["attempt"]) for body in bodies] == [(second.id, 2), (ticket.id, 2)]


async def test_three_deaths_end_a_run_also_over_restarts(autojump_clock, lives):
    async with lives.crash() as home:
        executor = await home.executor(beat=None)
        ticket, _body = await home.begin(executor, "resumable")
        await executor.leave()
        await trio.sleep(TTL + 1)
        second = await home.executor("e2", beat=None)
        await second.receive("execute")
        await second.leave()
        await trio.sleep(TTL + 1)
    async with lives.clean() as home:
        third = await home.executor("e3", beat=None)
        await third.receive("execute")
        await third.leave()
        await trio.sleep(TTL + 1)
        run = await home.run(ticket)
        assert (run.status, run.reason) == (Status.FAILED, "killed")


async def test_an_executor_that_attaches_while_the_engine_shuts_down_must_retry(autojump_clock, lives):
    async with lives.clean() as home:
        executor = await home.executor()
        home.engine.executors._registry.leave()
        answer = await home.attach(executor)
        assert (answer["message"], answer["retry"]) == ("engine is shutting down", True)
