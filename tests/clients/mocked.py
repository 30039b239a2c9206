"""JavaScript programs in a world where the network is a class of WebSockets, and the time is mock timers."""

from __future__ import annotations

from typing import Any

from .javascript import run_node

WORLD = """
    const { mock } = await import("node:test");
    mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
    const STEP = 10;
    const pass = async (seconds) => {
        for (let passed = 0; passed < seconds * 1000; passed += STEP) {
            mock.timers.tick(STEP);
            for (let turn = 0; turn < 20; turn++) await null;
        }
    };
    const now = () => Date.now() / 1000;
    const attempts = []; // the time, and the name of the node
    const open = new Set();
    const welcome = { type: "welcome", epoch: "e", seq: 0, server: "", limits: {}, role: "admin" };
    const nodes = {}; // what each node does with a connection; by default it refuses it
    const refuse = (socket) => socket.end();
    const beSilent = () => {};
    const serve = (socket) => socket.accept(welcome);
    class Socket {
        constructor(url) {
            this.node = new URL(url).hostname;
            attempts.push([now(), this.node]);
            queueMicrotask(() => (nodes[this.node] ?? refuse)(this));
        }
        accept(message) {
            open.add(this);
            this.onopen({});
            this.onmessage({ data: JSON.stringify(message) });
        }
        send(text) {
            const command = JSON.parse(text);
            if (command.id !== 0) commands.push([now(), this.node, command]);
            if (this.deaf) return;
            const data = JSON.stringify({ id: command.id, seq: 0, ...reply(command) });
            queueMicrotask(() => this.onmessage({ data }));
        }
        end(code = 1006, reason = "") {
            open.delete(this);
            this.onclose({ code, reason });
        }
        close() {
            open.delete(this);
        }
    }
    const commands = []; // the time, the name of the node, and the command
    let reply = () => ({ type: "ok", run_id: "r1", run: { id: "r1" } });
    const noLeader = (retry_after = 2) => {
        const details = { retry_after };
        return { type: "error", code: "unavailable", message: "the cluster has no leader", details };
    };
    const kill = (node) => {
        delete nodes[node];
        for (const socket of [...open]) if (socket.node === node) socket.end();
    };
    const addresses = (names) => [...names].map((name) => `ws://${name}:8440`);
    const inOrder = () => 0.999; // leaves the addresses in their order
    const states = [];
    const onConnection = ({ status, url }) => states.push(`${status} ${new URL(url).hostname}`);
    const given = { follow: false, WebSocket: Socket, random: inOrder, onConnection };
    const connecting = (names, options = {}) => connect(addresses(names), { ...given, ...options });
    const outcome = (promise) => {
        const found = {};
        promise.then(
            (value) => Object.assign(found, { value, at: now() }),
            ({ name, code, message }) => Object.assign(found, { name, code, message, at: now() }),
        );
        return found;
    };
"""


async def play(program: str, argument: Any = None) -> Any:
    """Run a program in the world of mock timers."""
    return await run_node(WORLD + program, argument)
