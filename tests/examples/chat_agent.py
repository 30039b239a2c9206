"""A chat agent: a session is a handle, its user sends messages, and the model's answer is streamed.

A tool that the model calls needs the user's permission. The user can stop an answer in the middle, and the
session continues. Serve it with `greenroom serve chat_agent:jobs`; `main` below starts that server, and
does what a front end does. The model is simulated; its place is that of an LLM library for asyncio.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import greenroom.aio
from greenroom import Jobs
from greenroom.errors import RunEnded

jobs = Jobs()
FOLDER = Path(__file__).resolve().parent


@jobs.job("session", resumable=True, loop="asyncio")
async def session(run: greenroom.aio.Run) -> list[dict]:
    """Answer the messages of one user. The checkpoint is the conversation."""
    talk = run.checkpoint or []
    while True:
        if not talk or talk[-1]["role"] == "assistant":
            text = await run.next_message(release_slot=True)  # without a slot, for days if need be
            if text == "/bye":
                return talk
            talk = [*talk, {"role": "user", "content": text}]
            await run.save_checkpoint(talk)  # a message is delivered once: save it before acting on it
        try:
            text = await run.call("answer", handle=f"{run.handle}/answer", params={"talk": talk})
        except RunEnded as error:  # cancelled by the user, failed, or timed out: keep what was shown
            shown = error.run.progress or {"text": ""}
            text = f"{shown['text']} … ({error.run.status})"
        talk = [*talk, {"role": "assistant", "content": text}]
        await run.save_checkpoint(talk)


@jobs.job("answer", resumable=True, max_attempts=3, loop="asyncio")
async def answer(run: greenroom.aio.Run, params: dict) -> str:
    """Stream one answer. It is a separate run, so it can be cancelled, retried and timed out alone."""
    talk, text, permissions = params["talk"], "", 0
    while True:
        tool = None
        async for part in model(talk):
            if isinstance(part, dict):
                tool = part
            else:
                text += part
                await run.progress(done=len(text), text=text)
        if tool is None:
            return text
        permissions += 1
        if await run.confirm(tool, timeout=600, key=f"permission {permissions}", release_slot=True):
            talk = [*talk, {"role": "tool", "content": use(**tool)}]
        else:
            talk = [*talk, {"role": "tool", "content": "not permitted"}]


def use(tool: str, arguments: dict) -> str:
    """In place of real tools."""
    return f"sunny in {arguments['city']}"


async def model(talk: list[dict]) -> AsyncIterator[str | dict]:
    """In place of a language model: yield parts of a text, or a tool call."""
    message = talk[-1]
    if message["role"] == "user" and "weather" in message["content"]:
        yield {"tool": "weather", "arguments": {"city": "Lisbon"}}
        return
    text = f"It is {message['content']}." if message["role"] == "tool" else "Once upon a time"
    for word in text.split(" "):
        await asyncio.sleep(0.01)
        yield word if word == text.split(" ")[0] else f" {word}"
    if message["role"] == "user":
        await asyncio.sleep(3600)  # a long story


async def act_as_a_front_end() -> None:
    async with serve() as url, greenroom.aio.connect(url) as client:
        ticket = await client.submit("session", handle="session:alice")
        events = client.events(filter={"handles": ["session:alice/answer"]})

        print("alice:", "How is the weather?", await client.inject("session:alice", "How is the weather?"))
        async for event in events:
            match event.type:
                case "interrupt_opened":
                    print("  may it call", event.data["tool"], event.data["arguments"])
                    await client.answer("session:alice/answer", True, key=event.key)
                case "run_state_changed" if event.to == "succeeded":
                    print("agent:", event.result)
                    break

        print("alice:", "Tell me a story", await client.inject("session:alice", "Tell me a story"))
        async for event in events:
            if event.type == "run_progress" and event.stats["text"] == "Once upon a time":
                await client.cancel("session:alice/answer")
            elif event.type == "run_state_changed" and event.to == "cancelled":
                print("agent: the answer is", event.to)
                break

        await client.inject("session:alice", "/bye")
        print("the conversation:")
        for message in await ticket.result():
            print(" ", message["role"], "-", message["content"])


@asynccontextmanager
async def serve() -> AsyncIterator[str]:
    """Start the server, on any free port, and stop it in the end."""
    command = ["-m", "greenroom", "serve", "chat_agent:jobs", "--port", "0", "--store", "memory:"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=FOLDER, stderr=asyncio.subprocess.PIPE
    )
    async for line in process.stderr:
        if url := re.search(rb"http://\S+", line):  # logged as soon as it listens
            break
    else:
        raise RuntimeError("the server has ended")
    try:
        yield url[0].decode()
    finally:
        process.terminate()
        await process.communicate()


def main() -> None:
    asyncio.run(act_as_a_front_end())


if __name__ == "__main__":
    main()

# Output:
# alice: How is the weather? accepted
#   may it call weather {'city': 'Lisbon'}
# agent: It is sunny in Lisbon.
# alice: Tell me a story accepted
# agent: the answer is cancelled
# the conversation:
#   user - How is the weather?
#   assistant - It is sunny in Lisbon.
#   user - Tell me a story
#   assistant - Once upon a time … (cancelled)
