/**
 * The JavaScript client of a Greenroom gateway: for browsers, and for Node from version 22 on.
 *
 *     import { connect } from "./greenroom.js";
 *
 *     const client = await connect("ws://127.0.0.1:8440", { token });
 *     const ticket = await client.submit("mirror", { handle: "alice", params: { url } });
 *     console.log(await ticket.result());
 *     for await (const item of client.events()) console.log(item);
 *     client.close();
 *
 * It keeps a fold of everything that the gateway tells (`client.state`), equal to the engine's at the same `seq`.
 * A connection that is lost is made again, and goes on where the last one ended; what the gateway has no more
 * comes as a snapshot. A submit is sent again safely, since each has a `request_id`.
 *
 * Numbers are those of JavaScript: an integer beyond 2^53 in parameters or results loses its last digits.
 */

// Errors.

/** What the gateway refuses, and what prevents a command: `code` and `details` as in docs/reference/errors.md. */
export class GreenroomError extends Error {
  constructor(code, message, details = {}) {
    super(message);
    this.name = "GreenroomError";
    this.code = code;
    this.details = details;
  }
}

/** The connection was lost before the answer came: the command may have been carried out, or not. */
export class OutcomeUnknown extends GreenroomError {
  constructor(command, why) {
    super("unavailable", `${why} before ${command} was answered: whether it was carried out is not known`, {
      command,
    });
    this.name = "OutcomeUnknown";
  }
}

/** A run that was waited for ended without a result: `run` is its last state, `run.status` says how it ended. */
export class RunEnded extends Error {
  constructor(run) {
    const why = run.error ?? run.reason;
    super(`run ${run.id} of job ${run.job} ${run.status}${why ? `: ${why}` : ""}`);
    this.name = "RunEnded";
    this.run = run;
  }
}

// The fold. It does what protocol/fold.py does, step by step, under the same names.

const KEPT_ENDED_RUNS = 1000;
const ENDED = new Set(["succeeded", "failed", "cancelled", "timed_out", "rejected"]);
const HANDLE_STATUS = {
  queued: "Queued",
  running: "Running",
  suspended: "Running",
  cancelling: "Running",
  succeeded: "Done",
  failed: "Failed",
  timed_out: "Failed",
  rejected: "Failed",
  cancelled: "Cancelled",
};

/** Whether a run's status is final. */
export const hasEnded = (run) => ENDED.has(run.status);

const defaultLimit = (lane) => (lane === "main" ? null : 1);

function handleStatus(before, to) {
  return before === "queued" && to === "cancelled" ? "Idle" : HANDLE_STATUS[to];
}

function nextRecord(run, event) {
  if (event.type === "run_state_changed") return afterTransition(run, event);
  if (run === undefined) throw new Error(`${event.type} ${event.seq} for run ${event.run}, which no event has created`);
  if (event.type === "run_progress") {
    const progress = { done: event.done, total: event.total, ...event.stats };
    return { ...run, progress, updated_at: event.at };
  }
  if (event.type === "run_changed") return afterChange(run, event);
  return { ...run, updated_at: event.at };
}

function afterTransition(run, event) {
  if (run === undefined) {
    return {
      id: event.run,
      handle: event.handle,
      lane: event.lane,
      job: event.job ?? "",
      kind: event.kind ?? "start",
      params: event.params ?? null,
      status: event.to,
      reason: event.reason,
      attempt: event.attempt,
      place: event.place,
      detached: false,
      interactive: false,
      streaming: false,
      compacting: false,
      waiting_for: null,
      progress: null,
      result: null,
      error: null,
      created_at: event.at,
      started_at: null,
      ended_at: null,
      updated_at: event.at,
    };
  }
  const { to, at } = event;
  const next = {
    ...run,
    status: to,
    reason: event.reason,
    attempt: event.attempt,
    place: event.place,
    updated_at: at,
  };
  if (event.interactive !== undefined && event.interactive !== null) {
    next.interactive = event.interactive;
    next.streaming = next.compacting = false;
  }
  if (to !== "cancelling") {
    next.waiting_for = event.waiting_for ?? null; // while cancelling it tells whether the run still holds a slot
    next.detached = false;
  }
  if (to === "running" && run.started_at === null) next.started_at = at;
  if (ENDED.has(to)) {
    next.interactive = next.streaming = next.compacting = false;
    next.result = event.result ?? null;
    next.error = event.error ?? null;
    next.ended_at = at;
  }
  return next;
}

function afterChange(run, event) {
  const next = { ...run, updated_at: event.at };
  if (isGiven(event.place) && run.status === "suspended") {
    next.waiting_for = "slot"; // its retry has come so far that it stands in its lane
  }
  for (const name of ["place", "detached", "interactive", "streaming", "compacting"]) {
    if (isGiven(event[name])) next[name] = event[name];
  }
  return next;
}

const isGiven = (value) => value !== undefined && value !== null;

/**
 * State that follows the events: `apply` them in order, `snapshot()` at any time.
 *
 * `runs` and `interrupts` are Maps by id, for looking things up without making a snapshot.
 */
export class Projection {
  #queued = 0;
  #executing = 0;
  #ended = new Set();
  #lanes = new Map();
  #handles = new Map();

  constructor(snapshot) {
    this.epoch = snapshot.epoch;
    this.seq = snapshot.seq;
    this.maxConcurrent = snapshot.engine.max_concurrent;
    this.draining = snapshot.engine.draining;
    this.runs = new Map(Object.entries(snapshot.runs));
    this.interrupts = new Map(Object.entries(snapshot.interrupts));
    this.#queued = snapshot.engine.queued;
    this.#executing = snapshot.engine.executing;
    this.#lanes.set("main", newLane(defaultLimit("main")));
    for (const [name, state] of Object.entries(snapshot.lanes)) {
      const lane = newLane(state.limit, state.generation);
      lane.executing = new Set(state.executing);
      lane.queued = new Set(state.queued);
      this.#lanes.set(name, lane);
    }
    for (const [name, state] of Object.entries(snapshot.handles)) {
      const handle = newHandle();
      handle.status = state.status;
      handle.active = state.active_run;
      handle.waiting = [...state.waiting];
      handle.params = state.params;
      this.#handles.set(name, handle);
    }
    for (const run of this.runs.values()) {
      this.#handles.get(run.handle).runs += 1;
      this.#lanes.get(run.lane).runs += 1;
      if (hasEnded(run)) this.#ended.add(run.id);
    }
  }

  /** Take the next event. Throws if it doesn't follow the one before. */
  apply(event) {
    if (event.seq !== this.seq + 1) {
      throw new Error(`event ${event.seq} does not follow ${this.seq}: an event was lost or repeated`);
    }
    this.seq = event.seq;
    if (event.run !== undefined) this.runs.set(event.run, nextRecord(this.runs.get(event.run), event));
    switch (event.type) {
      case "run_state_changed":
        return this.#transition(event);
      case "run_changed":
        return this.#change(event);
      case "interrupt_opened": {
        const { run, key, data, at, deadline } = event;
        this.interrupts.set(event.interrupt, { run, key, data, opened_at: at, deadline });
        return;
      }
      case "interrupt_closed":
        this.interrupts.delete(event.interrupt);
        return;
      case "lane_changed": {
        const lane = this.#lane(event.lane);
        lane.limit = event.limit;
        lane.generation = event.generation;
        return this.#forgetLane(event.lane);
      }
      case "handle_changed": {
        const handle = this.#handle(event.handle);
        if (event.params !== undefined) handle.params = event.params;
        if (isGiven(event.freed) && handle.active === event.freed) handle.active = null;
        return this.#forgetHandle(event.handle);
      }
      case "engine_changed":
        this.maxConcurrent = event.max_concurrent;
        this.draining = event.draining;
    }
  }

  /** Everything as of `seq`, as the engine's own snapshot has it. */
  snapshot() {
    const pending = [...this.runs].filter(([, run]) => !hasEnded(run));
    const ended = [...this.#ended].map((id) => [id, this.runs.get(id)]);
    const byPlace = (one, other) => this.runs.get(one).place - this.runs.get(other).place;
    return {
      epoch: this.epoch,
      seq: this.seq,
      engine: {
        max_concurrent: this.maxConcurrent,
        executing: this.#executing,
        queued: this.#queued,
        draining: this.draining,
      },
      lanes: mapped(this.#lanes, (lane) => ({
        limit: lane.limit,
        generation: lane.generation,
        executing: [...lane.executing].sort(byPlace),
        queued: [...lane.queued].sort(byPlace),
      })),
      handles: mapped(this.#handles, (handle) => ({
        status: handle.status,
        locked: handle.active !== null,
        active_run: handle.active,
        waiting: [...handle.waiting],
        params: handle.params,
      })),
      interrupts: Object.fromEntries(this.interrupts),
      runs: Object.fromEntries([...pending, ...ended]),
    };
  }

  #transition(event) {
    const { run: id, from: before, to } = event;
    const handle = this.#handle(event.handle);
    const lane = this.#lane(event.lane);
    if (before === null) {
      handle.runs += 1;
      lane.runs += 1;
      this.#queued += 1;
      if (event.place === null) {
        if (event.front) handle.waiting.unshift(id);
        else handle.waiting.push(id);
      } else {
        lane.queued.add(id);
        handle.active = id;
        handle.status = "Queued";
      }
      return;
    }
    if (before === "queued") {
      this.#queued -= 1;
      lane.queued.delete(id);
      remove(handle.waiting, id);
    }
    if (to === "running") {
      lane.executing.add(id);
      this.#executing += 1;
    } else if (to !== "cancelling") {
      this.#giveBack(lane, id);
    }
    if (handle.active === id) handle.status = handleStatus(before, to);
    if (ENDED.has(to)) {
      if (handle.active === id && !event.holds_handle) handle.active = null;
      this.#end(id);
    }
  }

  #change(event) {
    const lane = this.#lane(event.lane);
    if (event.detached) this.#giveBack(lane, event.run);
    const handle = this.#handle(event.handle);
    if (isGiven(event.place) && remove(handle.waiting, event.run)) {
      handle.active = event.run;
      handle.status = "Queued";
      lane.queued.add(event.run);
    }
  }

  #handle(name) {
    let handle = this.#handles.get(name);
    if (handle === undefined) this.#handles.set(name, (handle = newHandle()));
    return handle;
  }

  #lane(name) {
    let lane = this.#lanes.get(name);
    if (lane === undefined) this.#lanes.set(name, (lane = newLane(defaultLimit(name))));
    return lane;
  }

  #giveBack(lane, id) {
    if (lane.executing.delete(id)) this.#executing -= 1;
  }

  #end(id) {
    this.#ended.add(id);
    if (this.#ended.size <= KEPT_ENDED_RUNS) return;
    const [oldest] = this.#ended;
    this.#ended.delete(oldest);
    const run = this.runs.get(oldest);
    this.runs.delete(oldest);
    this.#lanes.get(run.lane).runs -= 1;
    this.#forgetLane(run.lane);
    this.#handles.get(run.handle).runs -= 1;
    this.#forgetHandle(run.handle);
  }

  #forgetLane(name) {
    const lane = this.#lanes.get(name);
    if (lane.runs === 0 && name !== "main" && lane.generation === 0 && lane.limit === defaultLimit(name)) {
      this.#lanes.delete(name);
    }
  }

  #forgetHandle(name) {
    const handle = this.#handles.get(name);
    if (handle.runs > 0 || handle.active !== null) return;
    if (handle.params === null) this.#handles.delete(name);
    else handle.status = "Idle";
  }
}

const newLane = (limit, generation = 0) => ({
  limit,
  generation,
  executing: new Set(),
  queued: new Set(),
  runs: 0,
});
const newHandle = () => ({ status: "Idle", active: null, waiting: [], params: null, runs: 0 });
const mapped = (map, change) => Object.fromEntries([...map].map(([name, value]) => [name, change(value)]));

function remove(list, item) {
  const index = list.indexOf(item);
  if (index >= 0) list.splice(index, 1);
  return index >= 0;
}

/** The snapshot after the events, which must follow it without a gap. */
export function fold(snapshot, events) {
  const projection = new Projection(snapshot);
  for (const event of events) projection.apply(event);
  return projection.snapshot();
}

/** A whole snapshot, from its parts in their order; a lane or handle with long lists comes in several. */
function joined(parts) {
  const [first, ...others] = parts;
  const lanes = new Map(Object.entries(first.lanes));
  const handles = new Map(Object.entries(first.handles));
  const interrupts = Object.entries(first.interrupts);
  const runs = Object.entries(first.runs);
  for (const part of others) {
    for (const [name, lane] of Object.entries(part.lanes)) {
      const held = lanes.get(name);
      const executing = [...(held?.executing ?? []), ...lane.executing];
      lanes.set(name, { ...(held ?? lane), executing, queued: [...(held?.queued ?? []), ...lane.queued] });
    }
    for (const [name, handle] of Object.entries(part.handles)) {
      const held = handles.get(name);
      handles.set(name, { ...(held ?? handle), waiting: [...(held?.waiting ?? []), ...handle.waiting] });
    }
    interrupts.push(...Object.entries(part.interrupts));
    runs.push(...Object.entries(part.runs));
  }
  return {
    ...first,
    lanes: Object.fromEntries(lanes),
    handles: Object.fromEntries(handles),
    interrupts: Object.fromEntries(interrupts),
    runs: Object.fromEntries(runs),
  };
}

// The latest events, for those who iterate. A reader has a number and no queue.

const RING_SIZE = 8192;

class Ring {
  #events = [];
  #waiting = new Set();
  closed = false;

  constructor(after) {
    this.after = after;
  }

  get last() {
    return this.#events.at(-1)?.seq ?? this.after;
  }

  add(events) {
    this.#events.push(...events);
    if (this.#events.length >= 2 * RING_SIZE) {
      const gone = this.#events.splice(0, this.#events.length - RING_SIZE);
      this.after = gone.at(-1).seq;
    }
    this.#wake();
  }

  restart(after) {
    this.after = after;
    this.#events = [];
  }

  close() {
    this.closed = true;
    this.#wake();
  }

  /** The event that follows `seq`. */
  next(seq) {
    let low = 0;
    let high = this.#events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#events[middle].seq <= seq) low = middle + 1;
      else high = middle;
    }
    return this.#events[low];
  }

  /** Resolves when something changes. `wait.stop()` resolves it at once. */
  news() {
    let wake;
    const promise = new Promise((resolve) => (wake = resolve));
    this.#waiting.add(wake);
    return { promise, stop: wake };
  }

  #wake() {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }
}

// Filters of events, as protocol/events.py judges them.

function predicate(filter) {
  if (!filter) return () => true;
  const fields = { handles: "handle", lanes: "lane", runs: "run", types: "type" };
  const wanted = [];
  for (const [name, names] of Object.entries(filter)) {
    if (!(name in fields)) throw new GreenroomError("invalid", `filter: it has no ${name}`);
    if (isGiven(names)) wanted.push([fields[name], new Set(names)]);
  }
  return (event) => wanted.every(([field, names]) => event[field] === undefined || names.has(event[field]));
}

// The connection, and what is asked over it.

const SUBPROTOCOL = "greenroom.v1.json";
const FINAL = new Set(["invalid", "unauthorized", "forbidden"]);
const STARTS = new Set(["submit", "start_flow"]);
const LISTS = ["runs", "events", "flows", "versions", "tasks", "node_runs", "workers"];
const UNAUTHORIZED = 4401;
const LONGEST_TIMEOUT = 2 ** 31 - 1;

const CONNECT_WITHIN = 10_000;
const SHORTEST_PAUSE = 100;
const LONGEST_PAUSE = 5_000;
const STABLE = 5_000;
const QUIET = 30_000;

/**
 * Connect to a gateway. Resolves when the client knows the state; rejects with what prevents it.
 *
 * Options: `token`; `filter` (handles, lanes, runs) limits what is followed; `follow: false` leaves the events out;
 * `patience` is for how many seconds a command waits for a connection (30); `WebSocket` is the class to use in
 * place of the global one, such as that of the package `ws`; `random` draws pauses, from 0 to 1.
 */
export async function connect(url, options = {}) {
  const client = new Client(url, options);
  await client._begin();
  return client;
}

/** A client of a gateway; `connect` makes one. Commands resolve when they are committed. */
export class Client {
  /** The fold of all that the gateway has told, or null without following. */
  state = null;
  /** What the token permits. */
  role = null;

  /** Flows, and runs of them: `engine.flows`. Pages and versions are asked for with what goes over the wire. */
  flows = {
    check: async (definition) => {
      const { errors, warnings } = await this.#ask({ type: "check_flow", definition }, true);
      return { errors, warnings };
    },
    create: async (name, description = "") => (await this.#ask({ type: "create_flow", name, description })).flow,
    publish: async (name, definition, options = {}) =>
      (await this.#ask({ ...options, type: "publish_flow", name, definition })).version,
    addVersion: async (flow, definition, options = {}) =>
      (await this.#ask({ ...options, type: "add_flow_version", flow, definition })).version,
    list: async (query = {}) => {
      const { flows, total } = await this.#ask({ ...query, type: "list_flows" }, true);
      return { flows, total };
    },
    versions: async (flow, query = {}) =>
      (await this.#ask({ ...query, type: "list_flow_versions", flow }, true)).versions,
    version: async (id) => (await this.#ask({ type: "get_flow_version", version_id: id }, true)).version,
    start: async (flow, options = {}) => this.#start({ type: "start_flow", flow }, options),
    task: async (runId) => (await this.#ask({ type: "get_task", run_id: runId }, true)).task,
    tasks: async (query = {}) => {
      const { tasks, total } = await this.#ask({ ...query, type: "list_tasks" }, true);
      return { tasks, total };
    },
    nodeRuns: async (runId, query = {}) =>
      (await this.#ask({ ...query, type: "node_runs", run_id: runId }, true)).node_runs,
  };

  /** Workers: `engine.workers`. One that fetches its work can be written with it. */
  workers = {
    register: async (id, url, services, options = {}) =>
      (await this.#ask({ ...options, type: "register_worker", worker_id: id, url, services }, true)).worker,
    heartbeat: async (id, load = null) => {
      await this.#ask({ type: "heartbeat_worker", worker_id: id, load }, true);
    },
    list: async (query = {}) => (await this.#ask({ ...query, type: "list_workers" }, true)).workers,
    allocate: async (service) => (await this.#ask({ type: "allocate_worker", service }, true)).worker ?? null,
    poll: async (id, services, wait = 25) =>
      (await this.#ask({ type: "poll_work", worker_id: id, services, wait }, true)).item ?? null,
    complete: async (itemId, result = null, options = {}) => {
      await this.#ask({ ...options, type: "complete_work", item_id: itemId, result });
    },
    extend: async (itemId, id) => {
      await this.#ask({ type: "extend_work", item_id: itemId, worker_id: id }, true);
    },
  };

  #url;
  #token;
  #filter;
  #follow;
  #patience;
  #WebSocket;
  #random;

  #socket = null;
  #connected = false;
  #welcome = null;
  #calls = new Map();
  #number = 1;
  #failure = null;
  #left = false;
  #ready;
  #slashed = false; // whether it is the URL with a slash at the end of its path
  #reached = false;
  #failures = 0;
  #began = 0;
  #pause = null;

  #told = 0;
  #whole = 0; // up to where the ring has all that was wanted
  #asked = [];
  #parts = [];
  #ring = new Ring(0);
  #ends = new Map();
  #listeners = new Set();

  /** See `connect`. */
  constructor(url, { token = null, filter = null, follow = true, patience = 30, WebSocket, random = Math.random }) {
    if (filter?.types) {
      throw new GreenroomError("invalid", "filter: without some types there is no state to keep; give them to events()");
    }
    predicate(filter);
    this.#url = String(url).replace(/^http/, "ws");
    this.#token = token;
    this.#filter = filter;
    this.#follow = follow;
    this.#patience = patience * 1000;
    this.#WebSocket = WebSocket ?? globalThis.WebSocket;
    this.#random = random;
    if (!this.#WebSocket) throw new GreenroomError("invalid", "there is no WebSocket here: give one as an option");
  }

  /** Whether there is a connection now; if not, one is being made. */
  get connected() {
    return this.#connected;
  }

  /** Leave: waiting commands reject, iterators end. */
  close() {
    this.#left = true;
    this.#fail(() => new GreenroomError("unavailable", "the client has been closed"));
    this.#socket?.close(1000);
  }

  // Commands.

  /** Submit a run of a job; resolves to a Ticket. Sent again if the connection is lost, and happens once. */
  async submit(job, { handle, ...options } = {}) {
    return this.#start({ type: "submit", job, handle }, options);
  }

  async #start(what, { request_id = null, ...options }) {
    const command = { ...what, request_id: request_id ?? drawId(), ...wireTimeouts(options) };
    const reply = await this.#ask(command, true);
    const wasThere = Boolean(reply.joined) && (isGiven(request_id) || options.on_conflict === "join");
    return new Ticket(reply.run_id, wasThere, this);
  }

  /** Submit a run anew, with the same job, handle, lane, kind and parameters. */
  async rerun(runId) {
    const { job, handle, params, kind, lane } = await this.getRun(runId);
    return this.submit(job, { handle, params, kind, lane });
  }

  // Whatever takes a run takes a handle too: the run that is active in it.

  async cancel(runId, files = "keep") {
    return (await this.#ask({ type: "cancel", run_id: runId, files })).run;
  }

  async inject(runOrHandle, message) {
    return (await this.#ask({ type: "inject", run_or_handle: runOrHandle, message })).outcome;
  }

  /** Answer a question, by its id; or by the run or the handle that asks, and its `key`. */
  async answer(interruptId, data, { key = null } = {}) {
    return (await this.#ask({ type: "answer", interrupt_id: interruptId, data, ...(isGiven(key) && { key }) })).outcome;
  }

  /** Put a value into what a flow's run shares; what waits for it goes on. */
  async signal(runId, key, value) {
    await this.#ask({ type: "signal", run_id: runId, key, value });
  }

  async getRun(runId) {
    return (await this.#ask({ type: "get_run", run_id: runId }, true)).run;
  }

  /** A run once it has ended, or as it is after `timeout` seconds. */
  async wait(runId, timeout = 15) {
    const { id } = await this.getRun(runId);
    const ticket = new Ticket(id, false, this);
    await ticket.wait(timeout);
    return this.getRun(id);
  }

  /** Runs, newest first; the query has `handle`, `lane`, `status`, `limit` and `before`. */
  async listRuns(query = {}) {
    const reply = await this.#ask({ ...query, type: "list_runs" }, true);
    return reply.runs ?? [];
  }

  /** The events of a run; the query has `after` and `limit`. Without a limit it is all of them, page by page. */
  async history(runId, { after = 0, limit = Infinity } = {}) {
    const events = [];
    let next = after;
    while (next !== undefined && events.length < limit) {
      const page = { after: next, limit: Math.min(1000, limit - events.length) };
      const reply = await this.#ask({ ...page, type: "history", run_id: runId }, true);
      events.push(...(reply.events ?? []));
      next = reply.next;
    }
    return events;
  }

  async snapshot() {
    return (await this.#ask({ type: "snapshot" }, true)).snapshot;
  }

  async setParams(handle, params) {
    await this.#ask({ type: "set_params", handle, params });
  }

  async setConcurrency(lane, limit) {
    await this.#ask({ type: "set_concurrency", lane, limit });
  }

  async setMaxConcurrent(limit) {
    await this.#ask({ type: "set_max_concurrent", limit });
  }

  async clearLane(lane) {
    return (await this.#ask({ type: "clear_lane", lane })).count;
  }

  async clearHandle(handle) {
    return (await this.#ask({ type: "clear_handle", handle })).count;
  }

  async releaseHandle(handle) {
    return (await this.#ask({ type: "release_handle", handle })).released;
  }

  async resetLanes() {
    await this.#ask({ type: "reset_lanes" });
  }

  async drain() {
    await this.#ask({ type: "drain" });
  }

  async resume() {
    await this.#ask({ type: "resume" });
  }

  /** The last state of a run, once it has ended. */
  async ended(runId) {
    for (;;) {
      let run = this.state?.runs.get(runId);
      if (run === undefined) {
        run = (await this.#ask({ type: "wait", run_id: runId, timeout: "none" }, true)).run;
      } else if (!hasEnded(run)) {
        run = await this.#end(runId);
      }
      if (run && hasEnded(run)) return run;
    }
  }

  // Following.

  /**
   * The events from now on, or from the one after `after`, as an async iterator. Where they are not at hand any
   * more, `{ type: "snapshot", snapshot }` comes instead, and then the events after it.
   */
  events({ after = null, filter = null, signal = null } = {}) {
    this.#mustFollow();
    return this.#iterate(after ?? this.state.seq, predicate(filter), signal, this.#ring);
  }

  async *#iterate(seq, passes, signal, ring) {
    if (ring.after > seq || seq > this.state.seq) {
      await this.#reach(seq);
      ring = this.#ring;
    }
    let fresh = seq > this.state.seq;
    while (!signal?.aborted) {
      if (fresh || ring.after > seq || (ring !== this.#ring && ring.next(seq) === undefined)) {
        fresh = false;
        ring = this.#ring;
        const snapshot = this.state.snapshot();
        seq = snapshot.seq;
        yield { type: "snapshot", snapshot };
        continue;
      }
      const event = ring.next(seq);
      if (event !== undefined) {
        seq = event.seq;
        if (passes(event)) yield event;
      } else if (ring.closed) {
        if (this.#left || !this.#failure) return;
        throw this.#failure();
      } else {
        const { promise, stop } = ring.news();
        signal?.addEventListener("abort", stop, { once: true });
        await promise;
        signal?.removeEventListener("abort", stop);
      }
    }
  }

  /**
   * Call `hear` with every event from now on, after it is folded, and with `{ type: "snapshot", snapshot }` where
   * the state had to begin again. Returns a function that ends it. What `hear` throws is reported to the console.
   */
  onEvent(hear, filter = null) {
    this.#mustFollow();
    const listener = { hear, passes: predicate(filter) };
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  // Inside.

  /** Begin; for `connect`. */
  _begin() {
    return new Promise((resolve, reject) => {
      this.#ready = { resolve, reject, done: false };
      this.#open();
    });
  }

  #mustFollow() {
    if (this.state === null) {
      throw new GreenroomError("invalid", "this client doesn't follow the events: connect without follow: false");
    }
  }

  #ask(command, repeatable = false) {
    return new Promise((resolve, reject) => {
      if (this.#failure) {
        reject(this.#failure());
        return;
      }
      const id = this.#number++;
      const call = { command: { ...command, id }, repeatable, resolve, reject, sent: false, parts: [] };
      this.#calls.set(id, call);
      if (this.#connected) this.#send(call);
      else this.#waitForConnection(call);
    });
  }

  #waitForConnection(call) {
    if (call.command.type === "wait") return;
    call.timer = setTimeout(() => {
      const why = `there is no connection to ${this.#url}`;
      this.#calls.delete(call.command.id);
      const unknown = call.sent && STARTS.has(call.command.type);
      call.reject(
        unknown
          ? new OutcomeUnknown(call.command.type, why)
          : new GreenroomError("unavailable", `${why}; ${call.command.type} was not carried out`),
      );
    }, Math.min(this.#patience, LONGEST_TIMEOUT));
  }

  #send(call) {
    clearTimeout(call.timer);
    const text = JSON.stringify(call.command);
    const limit = this.#welcome.limits.max_message_bytes ?? Infinity;
    if (text.length * 3 > limit) {
      const size = new TextEncoder().encode(text).length;
      if (size > limit) {
        this.#calls.delete(call.command.id);
        call.reject(new GreenroomError("too_large", `${call.command.type}: ${size} bytes; at most ${limit}`, { size, limit }));
        return;
      }
    }
    if (call.command.type === "subscribe") this.#asked.push(call.command.after);
    call.sent = true;
    this.#socket.send(text);
  }

  #end(runId) {
    if (this.#failure) return Promise.reject(this.#failure());
    return new Promise((resolve, reject) => {
      const waiting = this.#ends.get(runId) ?? [];
      waiting.push({ resolve, reject });
      this.#ends.set(runId, waiting);
    });
  }

  #fail(makeError) {
    if (this.#failure) return;
    this.#failure = makeError;
    clearTimeout(this.#pause);
    if (!this.#ready.done) {
      this.#ready.done = true;
      this.#ready.reject(makeError());
    }
    for (const call of this.#calls.values()) {
      clearTimeout(call.timer);
      const unknown = call.sent && (STARTS.has(call.command.type) || !call.repeatable);
      call.reject(unknown ? new OutcomeUnknown(call.command.type, makeError().message) : makeError());
    }
    this.#calls.clear();
    this.#ring.close();
    for (const waiting of this.#ends.values()) for (const { reject } of waiting) reject(makeError());
    this.#ends.clear();
  }

  // Connections: one after the other, each a WebSocket.

  #open() {
    const url = this.#slashed ? withSlash(this.#url) : this.#url;
    this.#began = Date.now();
    let socket;
    try {
      socket = new this.#WebSocket(url, SUBPROTOCOL);
    } catch (error) {
      this.#fail(() => new GreenroomError("invalid", `url ${this.#url}: ${error.message}`));
      return;
    }
    this.#socket = socket;
    let why = "";
    let opened = false;
    const lose = (reason) => {
      why ||= reason;
      clearTimeout(timer);
      clearInterval(watch);
      if (this.#socket === socket) this.#lost(why, opened);
      socket.close();
    };
    const timer = setTimeout(() => lose("it didn't answer in time"), CONNECT_WITHIN);
    socket.onopen = () => {
      opened = true;
      this.#reached = true;
      if (this.#token !== null) socket.send(JSON.stringify({ type: "auth", token: this.#token, id: 0 }));
      else socket.send(JSON.stringify({ type: "unsubscribe", id: 0 })); // it hears at once if it needs a token
    };
    // A page can't ping. So after a while without a word it asks something, to hear whether anybody is there.
    let quiet = 0;
    const watch = setInterval(() => {
      quiet += 1;
      if (quiet === 2) socket.send(JSON.stringify({ type: "get_run", run_id: "-", id: 0 }));
      if (quiet === 3) lose("nothing was heard for too long");
    }, QUIET);
    socket.onmessage = ({ data }) => {
      quiet = 0;
      if (this.#socket !== socket) return;
      try {
        this.#take(JSON.parse(data));
      } catch (error) {
        lose(error.message);
      }
      if (this.#connected) clearTimeout(timer);
    };
    socket.onerror = (event) => {
      why ||= event.error?.message ?? event.message ?? "";
      // Of an attempt that has failed, Node tells nothing more, not even that it is closed.
      if (!opened && this.#socket === socket) lose("there is no connection");
    };
    socket.onclose = ({ code, reason }) => {
      clearTimeout(timer);
      clearInterval(watch);
      if (this.#socket !== socket) return;
      if (code === UNAUTHORIZED) this.#fail(() => new GreenroomError("unauthorized", reason || "the token is not in force"));
      this.#lost(why || reason || `it closed the connection (${code})`, opened);
    };
  }

  #lost(why, opened) {
    this.#socket = null;
    if (!opened && !this.#reached && !this.#failure && withSlash(this.#url) !== this.#url) {
      // Of a proxy that passes on only `prefix/`, a page hears no more than that it failed.
      this.#slashed = !this.#slashed;
      if (this.#slashed) return this.#open();
    }
    this.#connected = false;
    this.#asked = [];
    this.#parts = [];
    if (this.#failure) return;
    const message = `${this.#url} can't be reached: ${why}`;
    if (!this.#ready.done) {
      this.#fail(() => new GreenroomError("unavailable", message));
      return;
    }
    for (const [id, call] of this.#calls) {
      call.parts = [];
      clearTimeout(call.timer);
      if (call.sent && !call.repeatable) {
        this.#calls.delete(id);
        call.reject(new OutcomeUnknown(call.command.type, "the connection was lost"));
      } else {
        this.#waitForConnection(call);
      }
    }
    if (Date.now() - this.#began > STABLE) this.#failures = 0;
    const pause = Math.min(LONGEST_PAUSE, SHORTEST_PAUSE * 2 ** this.#failures++);
    this.#pause = setTimeout(() => this.#open(), pause * (0.5 + this.#random() / 2));
  }

  #take(message) {
    switch (message.type) {
      case "welcome":
        return this.#welcomed(message);
      case "ok":
        return this.#answered(message);
      case "error":
        return this.#refused(message);
      case "events":
        this.#takeEvents(message);
        return this.#tellWhenReady();
      case "resync":
        this.#resync(message);
        return this.#tellWhenReady();
    }
  }

  #welcomed(welcome) {
    this.#welcome = welcome;
    this.role = welcome.role;
    this.#connected = true;
    const waiting = [...this.#calls.values()];
    if (this.#follow) {
      const subscribe = { ...this.#subscription(this.#told), id: this.#number++ };
      this.#calls.set(subscribe.id, {
        command: subscribe,
        repeatable: false,
        resolve: () => this.#filter && this.#tellWhenCaughtUp(),
        reject: () => {},
        parts: [],
      });
      this.#send(this.#calls.get(subscribe.id));
    } else {
      this.#setReady();
    }
    for (const call of waiting) this.#send(call);
  }

  #subscription(after) {
    const command = { type: "subscribe", after, epoch: this.state?.epoch ?? "-" };
    return this.#filter ? { ...command, filter: this.#filter } : command;
  }

  #setReady() {
    if (this.#ready.done) return;
    this.#ready.done = true;
    this.#ready.resolve();
  }

  /** The first state is there when all is folded that there was at the welcome. */
  #tellWhenReady() {
    if (this.state !== null && !this.#filter && this.state.seq >= this.#welcome.seq) this.#setReady();
  }

  /** The same under a filter, where the gateway tells how far we are when it answers something. */
  async #tellWhenCaughtUp() {
    if (this.#ready.done) return;
    try {
      await this.#catchUp();
      this.#setReady();
    } catch (error) {
      this.#fail(() => error);
    }
  }

  /** Any answer comes behind the events that were committed when it was asked for. */
  #catchUp() {
    return this.#ask({ type: "list_runs", limit: 1 }, true);
  }

  /** Have the ring begin after `seq`, or later if the gateway has no older events any more. */
  async #reach(seq) {
    if (seq > this.state.seq) await this.#catchUp();
    if (this.#ring.after > seq) await this.#ask(this.#subscription(seq), true);
  }

  #answered(message) {
    const call = this.#calls.get(message.id);
    if (call === undefined) return;
    call.parts.push(message);
    if (message.more) return;
    this.#calls.delete(message.id);
    if (call.command.type === "subscribe") this.#subscribed(message.seq);
    const whole = { ...message };
    if (message.snapshot) whole.snapshot = joined(call.parts.map((part) => part.snapshot));
    for (const name of LISTS) {
      if (call.parts.some((part) => part[name])) whole[name] = call.parts.flatMap((part) => part[name] ?? []);
    }
    call.resolve(whole);
  }

  #refused({ id, code, message, details }) {
    if (!this.#connected && code === "unauthorized") {
      this.#fail(() => new GreenroomError(code, message, details));
      return;
    }
    const call = this.#calls.get(id);
    if (call === undefined) return;
    this.#calls.delete(id);
    call.reject(new GreenroomError(code, message, details));
    if (call.command.type !== "subscribe") return;
    if (!FINAL.has(code)) throw new Error(message);
    this.#fail(() => new GreenroomError(code, message, details));
    this.#socket?.close(1000);
  }

  // What is told. See gateway/client/following.py, which explains it.

  #subscribed(seq) {
    this.#asked.shift();
    this.#goesOnFrom(seq);
  }

  /** The events that come next follow `seq`: the ring begins there, unless they overlap with it. */
  #goesOnFrom(seq) {
    this.#told = seq;
    if (this.#ring.after <= seq && seq <= this.#whole) return;
    this.#ring.restart(seq);
    this.#whole = seq;
  }

  #takeEvents({ from, to, events }) {
    const state = this.state;
    if (state === null || from !== this.#told) {
      throw new Error(`it sent events from ${from}, where those from ${this.#told} were due`);
    }
    const last = this.#ring.last;
    const folded = [];
    for (const event of events) {
      if (event.seq <= state.seq) continue;
      state.seq = event.seq - 1; // those between pass neither the filter nor the token's limits
      state.apply(event);
      folded.push(event);
      if (event.type === "run_state_changed" && ENDED.has(event.to)) this.#hasEnded(event.run, state.runs.get(event.run));
    }
    this.#told = to;
    this.#whole = Math.max(this.#whole, to);
    state.seq = Math.max(state.seq, to);
    this.#ring.add(events.filter((event) => event.seq > last));
    for (const event of folded) this.#tell(event);
  }

  #resync({ snapshot, more }) {
    this.#parts.push(snapshot);
    if (more) return;
    const whole = joined(this.#parts);
    this.#parts = [];
    const start = Math.min(this.#told, ...this.#asked);
    const known = this.state;
    if (known !== null && known.epoch === whole.epoch && start <= whole.seq && whole.seq <= known.seq) {
      return this.#goesOnFrom(whole.seq); // older than what is known; and what follows it comes, too
    }
    this.#told = this.#whole = whole.seq;
    const before = this.#ring;
    this.state = new Projection(whole);
    this.#ring = new Ring(whole.seq);
    before.close();
    for (const runId of [...this.#ends.keys()]) {
      const run = this.state.runs.get(runId);
      if (run === undefined || hasEnded(run)) this.#hasEnded(runId, run);
    }
    if (known !== null) this.#tell({ type: "snapshot", snapshot: whole });
  }

  #hasEnded(runId, run) {
    for (const { resolve } of this.#ends.get(runId) ?? []) resolve(run);
    this.#ends.delete(runId);
  }

  #tell(item) {
    for (const { hear, passes } of this.#listeners) {
      try {
        if (item.type === "snapshot" || passes(item)) hear(item);
      } catch (error) {
        console.error(error);
      }
    }
  }
}

/** What a caller holds for a run that was accepted. */
export class Ticket {
  #client;

  constructor(id, joined, client) {
    this.id = id;
    this.joined = joined;
    this.#client = client;
  }

  /** The run's result, once it has ended; rejects with RunEnded if it has none. */
  async result() {
    const run = await this.#client.ended(this.id);
    if (run.status !== "succeeded") throw new RunEnded(run);
    return run.result;
  }

  /** Whether the run ends within `seconds`. */
  async wait(seconds = 15) {
    let timer;
    const tooLate = new Promise((resolve) => {
      timer = setTimeout(() => resolve(false), Math.min(seconds * 1000, LONGEST_TIMEOUT));
    });
    try {
      return await Promise.race([this.#client.ended(this.id).then(() => true), tooLate]);
    } finally {
      clearTimeout(timer);
    }
  }

  cancel(files = "keep") {
    return this.#client.cancel(this.id, files);
  }
}

/** The same address with a slash at the end of its path. */
function withSlash(url) {
  const address = new URL(url);
  if (address.pathname.endsWith("/")) return url;
  address.pathname += "/";
  return address.href;
}

const TIMEOUTS = ["queue_timeout", "run_timeout", "deadline", "warn_after"];

function wireTimeouts(options) {
  const changed = { ...options };
  for (const name of TIMEOUTS) if (changed[name] === Infinity) changed[name] = "none"; // JSON has no infinity
  return changed;
}

function drawId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
