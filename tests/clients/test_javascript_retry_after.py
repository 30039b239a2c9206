"""Commands that the JavaScript client repeats, because the gateway asks for it with `retry_after`."""

from __future__ import annotations

from .javascript import needs_node
from .mocked import play

pytestmark = needs_node


async def test_submits_and_commands_that_only_read_are_repeated_until_there_is_a_leader():
    program = """
        nodes.a = serve;
        const client = await connecting("a");
        const ok = reply;
        reply = () => noLeader();
        const found = {
            submit: outcome(client.submit("add", { handle: "alice" })),
            getRun: outcome(client.getRun("r1")),
            cancel: outcome(client.cancel("r1")),
        };
        await pass(5);
        reply = ok;
        await pass(2);
        answer({ found, submits: commands.filter(([,, { type }]) => type === "submit") });
    """
    result = await play(program)
    found = result["found"]
    assert found["cancel"]["message"] == "the cluster has no leader"
    assert found["cancel"]["at"] <= 0.05
    assert found["submit"]["value"]["id"] == "r1"
    assert 6 <= found["submit"]["at"] <= 6.1
    assert found["getRun"]["value"] == {"id": "r1"}
    assert len(result["submits"]) == 4
    assert len({command["request_id"] for _, _, command in result["submits"]}) == 1


async def test_an_error_without_a_time_is_not_repeated():
    program = """
        nodes.a = serve;
        const client = await connecting("a");
        const found = [];
        for (const retry of [null, "2", true, -1]) {
            reply = () => noLeader(retry);
            found.push(outcome(client.getRun("r1")));
        }
        reply = () => ({ ...noLeader(), code: "internal" });
        found.push(outcome(client.getRun("r1")));
        await pass(5);
        answer([commands.length, found.map(({ message }) => message)]);
    """
    assert await play(program) == [5, ["the cluster has no leader"] * 5]


async def test_a_command_is_repeated_no_longer_than_the_patience():
    program = """
        nodes.a = serve;
        const client = await connecting("a", { patience: 7 });
        reply = (command) => noLeader(command.run_id === "often" ? 0 : 2);
        const found = [outcome(client.getRun("r1")), outcome(client.submit("add", { handle: "alice" }))];
        const often = outcome(client.getRun("often"));
        const result = outcome(client.ended("r1"));
        await pass(20);
        const asked = commands.filter(([,, command]) => command.run_id === "often").length;
        answer({ found, often, asked, result });
    """
    result = await play(program)
    for found in result["found"]:
        assert (found["name"], found["message"]) == ("GreenroomError", "the cluster has no leader")
        assert 6 <= found["at"] <= 6.1
    assert result["often"]["message"] == "the cluster has no leader"
    assert 50 <= result["asked"] <= 71
    assert result["result"] == {}, "the wait for a result has no limit"


async def test_a_command_is_repeated_on_the_connection_that_the_client_then_has():
    program = """
        for (const name of "ab") nodes[name] = serve;
        const client = await connecting("ab");
        const ok = reply;
        reply = () => noLeader(10);
        const submit = outcome(client.submit("add", { handle: "alice" }));
        await pass(1);
        reply = ok;
        kill("a");
        await pass(8);
        const early = commands.length;
        await pass(2);
        kill("b");
        await pass(1);
        reply = () => noLeader(2);
        nodes.b = serve;
        await pass(5);
        const get = outcome(client.getRun("r1"));
        await pass(1);
        kill("b");
        reply = ok;
        await pass(3);
        nodes.b = serve;
        await pass(10);
        answer({ early, submit, get, sent: commands.map(([at, node]) => [Math.round(at), node]) });
    """
    found = await play(program)
    assert found["early"] == 1
    assert found["submit"]["value"]["id"] == "r1"
    assert found["sent"][:2] == [[0, "a"], [10, "b"]]
    assert found["get"]["value"] == {"id": "r1"}


async def test_the_outcome_is_unknown_if_an_earlier_reply_was_lost():
    program = """
        for (const name of "ab") nodes[name] = serve;
        const client = await connecting("ab", { patience: 5 });
        for (const socket of open) socket.deaf = true;
        const submit = outcome(client.submit("add", { handle: "alice" }));
        await pass(1);
        reply = () => noLeader();
        kill("a");
        await pass(20);
        answer(submit);
    """
    found = await play(program)
    assert found["name"] == "OutcomeUnknown"
    assert found["message"].startswith("the cluster has no leader before the reply to submit arrived")


async def test_closing_the_client_ends_the_wait_at_once():
    program = """
        nodes.a = serve;
        const client = await connecting("a");
        reply = () => noLeader(20);
        const get = outcome(client.getRun("r1"));
        await pass(1);
        client.close();
        await pass(0.1);
        answer(get);
    """
    found = await play(program)
    assert found["message"] == "the client is closed"
