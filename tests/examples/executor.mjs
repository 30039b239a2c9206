// An executor in JavaScript (Node 22 or newer): it executes the bodies of its jobs for an engine.
//   GREENROOM_TOKEN=gr_… node executor.mjs ws://127.0.0.1:8440/executor js-1
// docs/reference/executor-protocol.md describes the messages. A body here must not block the event loop, because
// that would stop the beats: an executor whose bodies can block sends its beats from another thread.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

// The jobs: the terms that are announced, and the body.

const JOBS = {
  count: {
    terms: { resumable: true, max_attempts: 3, params: { type: "object", required: ["to"] } },
    async body(run, { to, pause = 0 }) {
      for (let done = run.order.checkpoint ?? 0; done < to; ) {
        await sleep(pause * 1000, null, { signal: run.stopping.signal });
        await run.call({ type: "checkpoint", value: ++done, interrupts: 0, calls: 0 });
        run.report({ type: "progress", done, total: to });
      }
      await run.call({ type: "log", text: `counted to ${to}`, level: "info" });
      return to;
    },
  },
  deploy: {
    terms: {},
    async body(run) {
      const agreed = await run.call({ type: "interrupt", data: { question: "Deploy?" }, timeout: 600, key: "1" });
      return agreed ? "deployed" : "not deployed";
    },
  },
};

// Bodies.

class Run {
  constructor(order) {
    this.order = order;
    this.about = { run: order.run, fence: order.fence };
    this.stopping = new AbortController();
    this.calls = new Map(); // the calls without an answer
    this.lastCall = 0;
    this.received = 0; // the seq of the last message for this body
    this.end = null; // the end, until the engine has stored it
  }

  call(request) {
    const message = { type: "call", ...this.about, call: ++this.lastCall, request };
    return new Promise((resolve, reject) => {
      this.calls.set(message.call, { message, resolve, reject });
      send(message);
    });
  }

  report(report) {
    if (attached) send({ type: "report", ...this.about, report }); // progress is replaced by the next one
  }

  async execute() {
    let end;
    try {
      const job = JOBS[this.order.job];
      if (job) end = { outcome: "returned", value: (await job.body(this, this.order.params)) ?? null };
      else end = { outcome: "refused", error: `no job ${this.order.job}` };
    } catch (error) {
      end = { outcome: "raised", error: String(error), traceback: error.stack };
      if (this.stopping.signal.aborted) end = { outcome: this.stopping.signal.reason };
    }
    this.end = { type: "ended", ...this.about, ...end };
    send(this.end);
  }

  stop(outcome) {
    this.stopping.abort(outcome);
    for (const { reject } of this.calls.values()) reject(new Error(outcome));
    this.calls.clear();
  }

  repeat() {
    for (const { message } of this.calls.values()) send(message);
    if (this.end) send(this.end);
  }
}

const bodies = new Map(); // those whose ends are not stored, by run and fence
const key = ({ run, fence }) => `${run} ${fence}`;

function answered(run, { call, value = null, code, message, more }) {
  const waits = run.calls.get(call);
  if (!waits || more) return; // of the two answers to an interrupt, this program needs the second
  run.calls.delete(call);
  if (code) waits.reject(new Error(message));
  else waits.resolve(value);
}

const FOR_BODIES = {
  message: (run, { seq }) => (run.received = seq), // these jobs take no messages
  answered,
  cancel: (run, { stop }) => stop && run.stop("stopped"),
  close: (run) => run.stop("stopped"),
  settled: (run) => bodies.delete(key(run.about)),
};

const FOR_EXECUTOR = {
  execute(order) {
    bodies.set(key(order), new Run(order));
    bodies.get(key(order)).execute();
  },
  drain,
  delete_files: ({ id }) => send({ type: "files_deleted", id }), // these jobs write no files
  call_function: ({ id, name }) => send({ type: "function_ended", id, error: `no function ${name}` }),
  cancel_function() {},
};

// The session: numbered messages, each of which is received once and in order.

let session = null;
let kept = []; // the messages that the engine has not acknowledged
let first = 1; // the number of kept[0]
let sent = 0; // how many of them were sent on this connection
let received = 0;

function send(message) {
  kept.push(message);
  queueMicrotask(flush);
}

function flush(acknowledge = false) {
  while (attached && (acknowledge || sent < kept.length)) {
    const messages = kept.slice(sent, sent + 1); // several, if they fit into the maximum size of a frame
    socket.send(JSON.stringify({ type: "frame", first: first + sent, ack: received, messages }));
    sent += messages.length;
    acknowledge = false;
  }
}

function acknowledged(number) {
  const count = number - first + 1;
  kept.splice(0, count);
  first += count;
  sent -= count;
}

function receive(frame) {
  acknowledged(frame.ack);
  const messages = (frame.messages ?? []).slice(received - frame.first + 1);
  received += messages.length;
  for (const message of messages) {
    const run = bodies.get(key(message));
    if (message.type in FOR_EXECUTOR) FOR_EXECUTOR[message.type](message);
    else if (run) FOR_BODIES[message.type](run, message);
  }
  if (messages.length) flush(true);
  leaveIfDrained();
}

// The connection.

const [url, executor] = process.argv.slice(2);
const start = randomUUID(); // identifies this process
const now = () => performance.now() / 1000;
const token = process.env.GREENROOM_TOKEN;
let socket;
let attached = false;
let draining = false;
let ttl = 30;
let leaseUntil = Infinity; // bodies can execute until then; set by the first `attached`

function connect() {
  socket = new WebSocket(url, {
    protocols: ["greenroom.executor.v1"],
    headers: token ? { authorization: `Bearer ${token}` } : {},
  });
  const began = now();
  socket.onopen = () => {
    const jobs = Object.entries(JOBS).map(([name, { terms }]) => ({ name, ...terms }));
    const live = [...bodies.values()].map(({ order, received }) => {
      return { run: order.run, attempt: order.attempt, fence: order.fence, received };
    });
    const attach = { type: "attach", executor, start, jobs, slots: 8, labels: ["js"], draining };
    socket.send(JSON.stringify({ ...attach, session, received, bodies: live }));
  };
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.type === "attached") begin(message, began);
    else if (message.type === "frame") receive(message);
    else if (message.type === "beaten") renew(message);
    else if (message.type === "refused" && !message.retry) fail(message.message);
  };
  socket.onclose = () => {
    attached = false;
    setTimeout(connect, 500 + 1000 * Math.random());
  };
}

function begin(message, began) {
  ttl = message.ttl;
  leaseUntil = began + ttl;
  attached = true;
  if (message.resumed) {
    acknowledged(message.received);
    sent = 0; // send again what was not received
  } else {
    const adopted = new Set((message.bodies ?? []).map(key));
    for (const [id, run] of bodies) if (!adopted.has(id)) run.stop("stopped");
    [session, kept, first, sent, received] = [message.session, [], 1, 0, 0];
    for (const run of bodies.values()) run.repeat();
    if (draining) send({ type: "draining" });
  }
  flush();
  leaveIfDrained();
}

// The lease: bodies execute only while the engine has acknowledged recent beats.

function renew({ sent, attached: known = true }) {
  if (known) leaseUntil = Math.max(leaseUntil, sent + ttl);
  else socket.close(); // and attach again
}

setInterval(() => {
  if (attached) socket.send(JSON.stringify({ type: "beat", executor, start, sent: now() }));
}, 2000); // at least every sixth of the ttl

setInterval(() => {
  const executing = [...bodies.values()].filter((run) => !run.end);
  if (now() > leaseUntil - ttl / 3) executing.forEach((run) => run.stop("lapsed"));
  if (now() > leaseUntil - ttl / 6 && executing.length) process.exit(6); // a body has ignored that
}, 200);

// The end.

function fail(message) {
  console.error(message);
  process.exit(1);
}

function drain() {
  if (draining) return;
  draining = true;
  send({ type: "draining" });
  setTimeout(() => send({ type: "draining", now: true }), 30_000); // the engine ends the remaining bodies
}

function leaveIfDrained() {
  // Until the engine has acknowledged `draining`, a body can be on its way.
  if (!draining || bodies.size || kept.length || !attached) return;
  socket.onclose = () => process.exit(0);
  socket.close();
}

process.on("SIGTERM", drain);
connect();
