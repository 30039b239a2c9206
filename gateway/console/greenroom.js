/**
 * The JavaScript client of a Greenroom gateway, for browsers and for Node 22 or newer.
 *
 *     import { connect } from "greenroom";
 *
 *     const client = await connect("ws://127.0.0.1:8440", { token });
 *     const ticket = await client.submit("mirror", { handle: "alice", params: { url } });
 *     console.log(await ticket.result());
 *     for await (const item of client.events()) console.log(item);
 *     client.close();
 *
 * `client.state` is a fold of the events that the gateway sends. It equals the engine's state at the same `seq`.
 * After a lost connection the client reconnects and continues from the last event it received. If the gateway no
 * longer has the events in between, it sends a snapshot. A submit is safe to resend, because each has a request id.
 *
 * Options are in camelCase (`requestId`); snake_case (`request_id`) is accepted, too. Events, runs and snapshots keep
 * the field names of the protocol (`created_at`).
 *
 * Numbers are JavaScript numbers: an integer beyond 2^53 in parameters or results loses its last digits, unless the
 * client is connected with `exact: true`; see `ExactNumber`.
 */

// Errors.

/** A command that the gateway refused or that could not be sent. `code` and `details` are those of docs/reference/errors.md. */
export class GreenroomError extends Error {
  constructor(code, message, details = {}) {
    super(message);
    this.name = "GreenroomError";
    this.code = code;
    this.details = details;
  }
}

/** The connection was lost before the reply arrived: the gateway may or may not have carried out the command. */
export class OutcomeUnknown extends GreenroomError {
  constructor(command, why) {
    super("unavailable", `${why} before the reply to ${command} arrived; it may or may not have been carried out`, {
      command,
    });
    this.name = "OutcomeUnknown";
  }
}

/** A run ended without a result. `run` is its last state; `run.status` is how it ended. */
export class RunEnded extends Error {
  constructor(run) {
    const why = run.error ?? run.reason;
    super(`run ${run.id} of job ${run.job} ${run.status}${why ? `: ${why}` : ""}`);
    this.name = "RunEnded";
    this.run = run;
  }
}

// Exact numbers.

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const STRING_OR_NUMBER = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
const MAY_BE_LARGE = /(?:^|[[:,\s])-?(?:\d{16}|\d+(?:\.\d+)?[eE]\+?\d)/;
/** Stands before a number that was made a string. It is random, so that no string of a user begins with it. */
const MARK = `number ${[...crypto.getRandomValues(new Uint32Array(4))].join("-")} `;
const MARKED = new RegExp(`"${MARK}([^"]*)"`, "g");

/** A number of JSON by its text, for numbers that a JavaScript number cannot hold, such as 9007199254740993. */
export class ExactNumber {
  /** `source`: the text of a JSON number, or a BigInt. */
  constructor(source) {
    const text = String(source);
    if (!NUMBER.test(text)) {
      throw new GreenroomError("invalid", `ExactNumber: ${shown(source)} is not a JSON number; pass text such as "12"`);
    }
    this.source = text;
    Object.freeze(this);
  }

  toString() {
    return this.source;
  }

  /** The nearest JavaScript number. */
  valueOf() {
    return Number(this.source);
  }

  /** For `JSON.stringify`: exact where there is `JSON.rawJSON`, else a string. */
  toJSON() {
    return JSON.rawJSON?.(this.source) ?? this.source;
  }
}

/** `JSON.parse`, but a number that `JSON.stringify` would write differently, such as 1.0, is an `ExactNumber`. */
export const parseExact = (text) => parsed(text, (number) => String(Number(number)) !== number);

/** `JSON.stringify` that writes an `ExactNumber` by its text. */
export const writeExact = (value, indent = 0) => written(value, indent, (key, one) => one);

function parsed(text, isKept) {
  const value = JSON.parse(text); // also says what is wrong with the text
  let found = false;
  const marked = text.replace(STRING_OR_NUMBER, (token) => {
    if (token.startsWith('"') || !isKept(token)) return token;
    found = true;
    return `"${MARK}${token}"`;
  });
  if (!found) return value;
  const isMarked = (one) => typeof one === "string" && one.startsWith(MARK);
  return JSON.parse(marked, (key, one) => (isMarked(one) ? new ExactNumber(one.slice(MARK.length)) : one));
}

/** A message of the gateway, with the numbers that JavaScript would change as `ExactNumber`. Few messages have any. */
function parsedMessage(text) {
  if (!MAY_BE_LARGE.test(text)) return JSON.parse(text);
  return parsed(text, (number) => {
    const value = Number(number);
    return !Number.isFinite(value) || (Number.isInteger(value) && !Number.isSafeInteger(value));
  });
}

function written(value, indent, check) {
  const marked = function (key, one) {
    const own = this[key]; // `one` is what its toJSON returned
    return own instanceof ExactNumber ? MARK + own.source : check(key, one);
  };
  return JSON.stringify(value, marked, indent)?.replace(MARKED, "$1");
}

// The fold. It follows protocol/fold.py step by step, with the same names.

/** The types of events. */
export const EVENT_TYPES = Object.freeze([
  "run_state_changed", "run_changed", "run_progress", "run_log", "run_waiting", "run_message", "run_signal",
  "node_started", "node_ran", "interrupt_opened", "interrupt_closed", "lane_changed", "handle_changed",
  "engine_changed", "flow_changed", "node_worker_changed", "executor_changed", "node_changed", "leader_changed",
  "schedule_changed", "schedule_fired", "schedule_missed", "webhook_changed",
]);

/** The most ended runs that a snapshot and the state contain: those that ended last. */
export const KEPT_ENDED_RUNS = 1000;

const UNTIL_TIME = "time";
const UNTIL_HANDLE_FREE = "handle";
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
  if (run === undefined) throw new Error(`event ${event.seq} (${event.type}) is for the unknown run ${event.run}`);
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
      needs: event.needs ?? [],
      tags: event.tags ?? {},
      priority: event.priority ?? 0,
      key: event.key ?? null,
      not_before: event.not_before ?? null,
      parent: event.parent ?? null,
      status: event.to,
      reason: event.reason,
      attempt: event.attempt,
      place: event.place,
      placed_at: null,
      detached: false,
      interactive: false,
      streaming: false,
      compacting: false,
      waiting_for: event.waiting_for ?? null,
      executor: null,
      fence: null,
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
    next.waiting_for = event.waiting_for ?? null; // of a cancelling run: whether it still has a slot
    next.detached = false;
  }
  if (to === "running" && isGiven(event.interactive)) {
    next.executor = event.executor ?? null;
    next.fence = event.seq;
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
  if (isGiven(event.place)) {
    next.waiting_for = run.status === "suspended" ? "slot" : null; // a retry is due, or the handle admits the run
  }
  if (isGiven(event.place)) next.placed_at = event.at;
  for (const name of ["place", "priority", "waiting_for", "detached", "interactive", "streaming", "compacting"]) {
    if (isGiven(event[name])) next[name] = event[name];
  }
  if (event.params !== undefined) next.params = event.params;
  return next;
}

const isGiven = (value) => value !== undefined && value !== null;

/** Whether an event changes a schedule. It is not an event of its run, and passes filters by run. */
const isOfSchedule = (event) => event.type.startsWith("schedule_");

/**
 * The state after a snapshot and the events that follow it: `apply` each event in order.
 *
 * `runs`, `interrupts` and `executors` are Maps by id, and `schedules` by name, for lookups without a snapshot.
 */
export class Projection {
  #queued = 0;
  #executing = 0;
  #pending = new Map(); // the number of runs by status
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
    this.executors = new Map(Object.entries(snapshot.executors ?? {})); // older gateways have none
    this.schedules = new Map(Object.entries(snapshot.schedules ?? {}));
    this.#queued = snapshot.engine.queued;
    this.#executing = snapshot.engine.executing;
    this.#lanes.set("main", newLane(defaultLimit("main")));
    for (const [name, state] of Object.entries(snapshot.lanes)) {
      const lane = newLane(state.limit, state.generation);
      lane.paused = state.paused ?? false;
      lane.rules = state.rules ?? {};
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
      if (hasEnded(run)) {
        this.#ended.add(run.id);
        if (isGiven(run.place)) this.#handles.get(run.handle).lastEnded = run.id;
      } else this.#count(run.status, 1);
    }
  }

  /** Apply the next event. Throws if its `seq` is not the next one. */
  apply(event) {
    if (event.seq !== this.seq + 1) {
      throw new Error(`event ${event.seq} does not follow event ${this.seq}: an event was lost or repeated`);
    }
    this.seq = event.seq;
    if (event.run !== undefined && !isOfSchedule(event)) this.runs.set(event.run, nextRecord(this.runs.get(event.run), event));
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
        lane.paused = event.paused ?? false;
        lane.rules = event.rules ?? {};
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
        return;
      case "executor_changed": {
        const { executor, status, slots = null, labels = [], jobs = [], ttl = null, start = "" } = event;
        if (status === "gone") this.executors.delete(executor);
        else this.executors.set(executor, { status, slots, labels, jobs, ttl, start });
        return;
      }
      case "schedule_changed":
        if (event.state === null) this.schedules.delete(event.schedule);
        else this.schedules.set(event.schedule, event.state);
        return;
      case "schedule_fired": {
        const { schedule: name, at_planned: planned, run = null, error = null, next = [] } = event;
        const schedule = this.schedules.get(name);
        if (event.triggered || schedule === undefined) return;
        const last = { last_fired: planned, last_run: run, last_error: error };
        this.schedules.set(name, { ...schedule, decided_until: planned, next, ...last });
        return;
      }
      case "schedule_missed": {
        const { schedule: name, until, next = [] } = event;
        this.schedules.set(name, { ...this.schedules.get(name), decided_until: until, next });
      }
    }
  }

  /** The whole state as of `seq`, equal to the engine's snapshot. */
  snapshot() {
    const pending = [...this.runs].filter(([, run]) => !hasEnded(run));
    const ended = [...this.#ended].map((id) => [id, this.runs.get(id)]);
    const byPlace = (one, other) => this.runs.get(one).place - this.runs.get(other).place;
    return {
      epoch: this.epoch,
      seq: this.seq,
      engine: this.#engine(),
      lanes: mapped(this.#lanes, (lane) => ({
        limit: lane.limit,
        generation: lane.generation,
        executing: [...lane.executing].sort(byPlace),
        queued: [...lane.queued].sort(byPlace),
        ...(lane.paused && { paused: true }),
        ...(Object.keys(lane.rules).length > 0 && { rules: lane.rules }),
      })),
      handles: mapped(this.#handles, handleState),
      interrupts: Object.fromEntries(this.interrupts),
      runs: Object.fromEntries([...pending, ...ended]),
      executors: Object.fromEntries(this.executors),
      schedules: Object.fromEntries(this.schedules),
    };
  }

  /** The rules of a lane; without any, an empty object. */
  rules(lane) {
    return this.#lanes.get(lane)?.rules ?? {};
  }

  /** The numbers of runs as of `seq`: without lists, so it takes constant time per lane. */
  counts() {
    return {
      seq: this.seq,
      engine: this.#engine(),
      lanes: mapped(this.#lanes, (lane) => ({
        limit: lane.limit,
        generation: lane.generation,
        executing: lane.executing.size,
        queued: lane.queued.size,
        paused: lane.paused,
      })),
      runs: Object.fromEntries(this.#pending),
    };
  }

  /** A handle as in a snapshot, or null. */
  handle(name) {
    const handle = this.#handles.get(name);
    return handle === undefined ? null : handleState(handle);
  }

  /** The names of the handles of a snapshot, in no order that means anything. */
  handleNames() {
    return this.#handles.keys();
  }

  #engine() {
    return {
      max_concurrent: this.maxConcurrent,
      executing: this.#executing,
      queued: this.#queued,
      draining: this.draining,
    };
  }

  #count(status, change) {
    const number = (this.#pending.get(status) ?? 0) + change;
    if (number > 0) this.#pending.set(status, number);
    else this.#pending.delete(status);
  }

  #transition(event) {
    const { run: id, from: before, to } = event;
    if (before !== null) this.#count(before, -1);
    if (!ENDED.has(to)) this.#count(to, 1);
    const handle = this.#handle(event.handle);
    const lane = this.#lane(event.lane);
    if (before === null) {
      handle.runs += 1;
      lane.runs += 1;
      this.#queued += 1;
      const delayed = event.waiting_for === UNTIL_TIME;
      if (event.place !== null) {
        if (!delayed) lane.queued.add(id);
        handle.active = id;
        handle.status = "Queued";
      } else if (!delayed) {
        wait(handle, event);
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
      this.#releaseSlot(lane, id);
    }
    if (handle.active === id) handle.status = handleStatus(before, to);
    if (ENDED.has(to)) {
      if (handle.active === id && !event.holds_handle) handle.active = null;
      if (isGiven(event.place)) handle.lastEnded = id;
      this.#end(id);
    }
  }

  #change(event) {
    const lane = this.#lane(event.lane);
    if (event.detached) this.#releaseSlot(lane, event.run);
    const handle = this.#handle(event.handle);
    const run = this.runs.get(event.run);
    if (run.status !== "queued") return;
    if (isGiven(event.place)) {
      remove(handle.waiting, event.run);
      handle.active = event.run;
      handle.status = "Queued";
      if (event.waiting_for !== UNTIL_TIME) lane.queued.add(event.run);
    } else if (event.waiting_for === UNTIL_HANDLE_FREE) {
      wait(handle, event);
      this.runs.delete(event.run); // it counts as submitted now
      this.runs.set(event.run, run);
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

  #releaseSlot(lane, id) {
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
    const handle = this.#handles.get(run.handle);
    handle.runs -= 1;
    if (handle.lastEnded === oldest) handle.lastEnded = null;
    this.#forgetHandle(run.handle);
  }

  #forgetLane(name) {
    const lane = this.#lanes.get(name);
    const asNew = lane.limit === defaultLimit(name) && lane.generation === 0 && !lane.paused;
    if (lane.runs === 0 && name !== "main" && asNew && Object.keys(lane.rules).length === 0) {
      this.#lanes.delete(name);
    }
  }

  #forgetHandle(name) {
    const handle = this.#handles.get(name);
    if (handle.active !== null) return;
    if (handle.runs === 0 && handle.params === null) this.#handles.delete(name);
    else if (handle.lastEnded === null) handle.status = "Idle";
  }
}

const newLane = (limit, generation = 0) => ({
  limit,
  generation,
  paused: false,
  rules: {},
  executing: new Set(),
  queued: new Set(),
  runs: 0,
});
const newHandle = () => ({ status: "Idle", active: null, waiting: [], params: null, runs: 0, lastEnded: null });
const handleState = (handle) => ({
  status: handle.status,
  locked: handle.active !== null,
  active_run: handle.active,
  waiting: [...handle.waiting],
  params: handle.params,
});
const mapped = (map, change) => Object.fromEntries([...map].map(([name, value]) => [name, change(value)]));

function wait(handle, event) {
  if (event.front) handle.waiting.unshift(event.run);
  else handle.waiting.push(event.run);
}

function remove(list, item) {
  const index = list.indexOf(item);
  if (index >= 0) list.splice(index, 1);
}

/** The snapshot after these events, which must follow `snapshot` without a gap. */
export function fold(snapshot, events) {
  const projection = new Projection(snapshot);
  for (const event of events) projection.apply(event);
  return projection.snapshot();
}

/** Join the parts of a snapshot. A lane or handle with long lists is spread over several parts. */
function joined(parts) {
  const [first, ...others] = parts;
  const lanes = new Map(Object.entries(first.lanes));
  const handles = new Map(Object.entries(first.handles));
  const interrupts = Object.entries(first.interrupts);
  const runs = Object.entries(first.runs);
  const executors = Object.entries(first.executors ?? {});
  const schedules = Object.entries(first.schedules ?? {});
  for (const part of others) {
    for (const [name, lane] of Object.entries(part.lanes)) {
      const known = lanes.get(name);
      const executing = [...(known?.executing ?? []), ...lane.executing];
      lanes.set(name, { ...(known ?? lane), executing, queued: [...(known?.queued ?? []), ...lane.queued] });
    }
    for (const [name, handle] of Object.entries(part.handles)) {
      const known = handles.get(name);
      handles.set(name, { ...(known ?? handle), waiting: [...(known?.waiting ?? []), ...handle.waiting] });
    }
    interrupts.push(...Object.entries(part.interrupts));
    runs.push(...Object.entries(part.runs));
    executors.push(...Object.entries(part.executors ?? {}));
    schedules.push(...Object.entries(part.schedules ?? {}));
  }
  return {
    ...first,
    lanes: Object.fromEntries(lanes),
    handles: Object.fromEntries(handles),
    interrupts: Object.fromEntries(interrupts),
    runs: Object.fromEntries(runs),
    executors: Object.fromEntries(executors),
    schedules: Object.fromEntries(schedules),
  };
}

// The latest events, for iterators. An iterator keeps the `seq` of its last event and no queue.

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
      const dropped = this.#events.splice(0, this.#events.length - RING_SIZE);
      this.after = dropped.at(-1).seq;
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

  /** The first event after `seq`, or undefined. */
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

  /** A promise that resolves at the next change; `stop()` resolves it immediately. */
  change() {
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

// Options: in camelCase, and in snake_case, as the protocol has them.

const CONNECT = ["token", "filter", "follow", "exact", "patience", "onConnection", "WebSocket", "random"];
const TRACE = ["traceparent", "tracestate"];
const SUBMIT = [
  "handle",
  "params",
  "kind",
  "lane",
  "onConflict",
  "requestId",
  "queueTimeout",
  "runTimeout",
  "deadline",
  "warnAfter",
  "needs",
  "priority",
  "key",
  "startAt",
  "delay",
  "reserve",
  "tags",
  "notify",
  ...TRACE,
];
const START_FLOW = [...SUBMIT.filter((name) => name !== "needs"), "version"];
const RULES = ["fairBy", "weights", "limitPerKey", "rate", "burst", "ratePer", "age", "priority", "notify"];
const JOINING = ["join", "coalesce"]; // a submission can join the run of another one
const TIMEOUTS = ["queueTimeout", "runTimeout", "deadline", "warnAfter"];
const ONCE = ["requestId", "startAt", "delay", "reserve", ...TRACE]; // not for runs that a schedule submits
const TIMES = ["cron", "every", "timezone"];
const SCHEDULE = [
  ...SUBMIT.filter((name) => !ONCE.includes(name)),
  "job",
  ...TIMES,
  "jitter",
  "missed",
  "missedLimit",
  "paused",
];
const PAGE = ["limit", "offset"];
const RUNS = ["handle", "lane", "job", "flow", "status", "tags", "since", "until", "error", "parent"];
const BULK = [...RUNS, "limit", "dryRun"];
const VERSION = ["version", "status"];
const FILTER = { handles: "handle", lanes: "lane", runs: "run", types: "type" };

const shown = (value) => (typeof value === "string" ? JSON.stringify(value) : String(value));

const snakeCase = (name) => (isClass(name) ? name : name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));
const isClass = (name) => /^[A-Z]/.test(name);

/** The options that were passed to `method`, by their names in camelCase. `undefined` is the same as absent. */
function read(method, options, known) {
  if (typeof options !== "object" || options === null) {
    throw new GreenroomError("invalid", `${method}: options must be an object (got ${shown(options)})`);
  }
  const names = new Map(known.flatMap((name) => [[snakeCase(name), name], [name, name]]));
  const found = new Map();
  for (const [written, value] of Object.entries(options)) {
    const name = names.get(written);
    if (name === undefined) throw unknownName(method, "option", written, known);
    if (value === undefined) continue;
    if (found.has(name) && !Object.is(found.get(name), value)) {
      throw new GreenroomError(
        "invalid",
        `${method}: ${name} and ${snakeCase(name)} are the same option and have different values; pass only ${name}`,
        { option: name },
      );
    }
    found.set(name, value);
  }
  return Object.fromEntries(found);
}

/** The same, by their names in the protocol. */
function toWire(method, options, known) {
  const found = Object.entries(read(method, options, known));
  return Object.fromEntries(found.map(([name, value]) => [snakeCase(name), valueToWire(name, value)]));
}

/** JSON has neither an infinity nor dates. */
function valueToWire(name, value) {
  if (value === Infinity && TIMEOUTS.includes(name)) return "none";
  return value instanceof Date ? value.getTime() / 1000 : value;
}

function unknownName(where, what, written, known) {
  const near = nearest(written, known);
  const remedy = near === undefined ? `known ${what}s: ${known.join(", ")}` : `did you mean ${near}?`;
  const details = { [what]: written, known: [...known] };
  return new GreenroomError("invalid", `${where}: unknown ${what} ${JSON.stringify(written)}; ${remedy}`, details);
}

function nearest(written, known) {
  const plain = (name) => name.replaceAll("_", "").toLowerCase();
  let best;
  let least = Math.max(2, Math.floor(written.length / 3)) + 1;
  for (const name of known) {
    const distance = editDistance(plain(written), plain(name));
    if (distance < least) [best, least] = [name, distance];
  }
  return best;
}

function editDistance(one, other) {
  let above = Array.from({ length: other.length + 1 }, (_, column) => column);
  for (let row = 1; row <= one.length; row++) {
    const current = [row];
    for (let column = 1; column <= other.length; column++) {
      const replaced = above[column - 1] + (one[row - 1] === other[column - 1] ? 0 : 1);
      current.push(Math.min(replaced, above[column] + 1, current[column - 1] + 1));
    }
    above = current;
  }
  return above[other.length];
}

// Filters of events, with the rules of protocol/events.py.

function predicate(filter) {
  if (!isGiven(filter)) return () => true;
  const wanted = [];
  for (const [name, values] of Object.entries(filter)) {
    if (!Object.hasOwn(FILTER, name)) throw unknownName("filter", "field", name, Object.keys(FILTER));
    if (!isGiven(values)) continue;
    if (!Array.isArray(values)) {
      throw new GreenroomError("invalid", `filter.${name} must be an array of strings (got ${shown(values)})`);
    }
    wanted.push([FILTER[name], new Set(values)]);
  }
  return (event) =>
    wanted.every(
      ([field, values]) =>
        event[field] === undefined || values.has(event[field]) || (field === "run" && isOfSchedule(event)),
    );
}

/** Half of a surrogate pair, as JSON.stringify writes it: its backslash is not itself escaped. */
const HALF = /(?<!\\)(?:\\\\)*\\ud[89a-f][0-9a-f]{2}/;

/** A command as JSON. JSON.stringify alone would replace NaN by null, which removes a limit or means a default. */
function encoded(command) {
  let text;
  try {
    text = written(command, 0, (key, value) => {
      if (typeof value !== "bigint" && (typeof value !== "number" || Number.isFinite(value))) return value;
      throw new TypeError(`${key}: ${value} is not a JSON value; use another number, null or a string`);
    });
  } catch (error) {
    throw new GreenroomError("invalid", `${command.type}: ${error.message}`);
  }
  const [half] = (text.includes("\\ud") && text.match(HALF)) || [];
  if (half === undefined) return text;
  const rule = `${half.slice(-6)} is half of a surrogate pair, which is no character; remove it`;
  throw new GreenroomError("invalid", `${command.type}: ${rule}`);
}

function checkListener(method, listener) {
  if (typeof listener === "function") return;
  throw new GreenroomError("invalid", `${method}: the listener must be a function (got ${shown(listener)})`);
}

/** An exception in a listener must not stop the client. */
function notify(listener, item) {
  try {
    listener(item);
  } catch (error) {
    console.error(error);
  }
}

// The client.

const SUBPROTOCOL = "greenroom.v1.json";
const FINAL = new Set(["invalid", "unauthorized", "forbidden"]);
const STARTS = new Set(["submit", "submit_many", "start_flow"]);
const MOST_RUNS = 10_000; // of one batch
const LISTS = [
  ...["submitted", "runs", "events", "flows", "versions", "tasks", "node_runs", "workers", "executors"],
  ...["schedules", "webhooks", "files", "jobs"],
];
const UNAUTHORIZED = 4401;
const LONGEST_TIMEOUT = 2 ** 31 - 1;

const CONNECT_WITHIN = 10_000;
const SHORTEST_LIMIT = 1_000;
const MOST_ADDRESSES = 100;
const SHORTEST_PAUSE = 100;
const LONGEST_PAUSE = 5_000;
const STABLE = 5_000;
const QUIET = 10_000;

let begin; // set by Client, so that only `connect` can call it

/**
 * Connect to a gateway. Resolves when the client has the state; rejects if the first connection fails.
 *
 * An array of URLs is the addresses of several nodes of one cluster. The client begins with a random one. If an address
 * is unreachable, or its connection is lost, the client tries the others at once. `connect` rejects as unavailable only
 * after every address has failed.
 *
 * - `token`: sent in the first message, never in the URL.
 * - `filter`: follow only some `handles`, `lanes` or `runs`.
 * - `follow: false`: do not follow the events. The client has no `state` and no `events()` then.
 * - `exact: true`: numbers that JavaScript would change, such as integers beyond 2^53, are of the class `ExactNumber`.
 * - `patience`: for how many seconds a command waits for a connection (30).
 * - `onConnection`: a listener for the state of the connection, from "connecting" on; see `Client.onConnection`.
 * - `WebSocket`: the class to use instead of the global one, such as that of the package `ws`.
 * - `random`: returns a number from 0 to 1, for the pauses between attempts to connect, and for the order of several
 *   addresses.
 */
export async function connect(url, options = {}) {
  const client = new Client(url, options);
  await begin(client);
  return client;
}

/** A client of a gateway; `connect` makes one. A command resolves when the engine has committed it. */
export class Client {
  static {
    begin = (client) => client.#begin();
  }

  /** The fold of all events received, or null with `follow: false`. */
  state = null;
  /** The role of the token. */
  role = null;
  /** The name of the token; null if the gateway requires none. */
  name = null;
  /** The patterns to which the token is limited; null if it has no limits. */
  within = null;

  /** Flows and their runs, as `engine.flows` in Python. */
  flows = {
    /** Check a definition; resolves to its `errors` and `warnings`. */
    check: async (definition) => {
      const { errors, warnings } = await this.#ask({ type: "check_flow", definition }, true);
      return { errors, warnings };
    },
    /** Create a flow without versions. */
    create: async (name, description = "") => (await this.#ask({ type: "create_flow", name, description })).flow,
    /** Add a version to the flow of this name, which is created if it does not exist. */
    publish: async (name, definition, options = {}) => {
      const given = toWire("flows.publish", options, VERSION);
      return (await this.#ask({ ...given, type: "publish_flow", name, definition })).version;
    },
    /** Add a version to an existing flow, by its id or name. */
    addVersion: async (flow, definition, options = {}) => {
      const given = toWire("flows.addVersion", options, VERSION);
      return (await this.#ask({ ...given, type: "add_flow_version", flow, definition })).version;
    },
    /** A page of the flows, and how many there are. */
    list: async (options = {}) => {
      const given = toWire("flows.list", options, PAGE);
      const { flows, total } = await this.#ask({ ...given, type: "list_flows" }, true);
      return { flows, total };
    },
    /** A page of the versions of a flow, without their definitions. */
    versions: async (flow, options = {}) => {
      const given = toWire("flows.versions", options, PAGE);
      return (await this.#ask({ ...given, type: "list_flow_versions", flow }, true)).versions;
    },
    /** One version, with its definition. */
    version: async (id) => (await this.#ask({ type: "get_flow_version", version_id: id }, true)).version,
    /** Start a run of a flow; resolves to a Ticket. */
    start: async (flow, options = {}) => {
      const { version = 0, ...others } = read("flows.start", options, START_FLOW);
      return this.#start("flows.start", { type: "start_flow", flow, version }, others);
    },
    /** A run of a flow, with the values that its nodes share. */
    task: async (runId) => (await this.#ask({ type: "get_task", run_id: runId }, true)).task,
    /** A page of the runs of flows, newest first, and how many there are. */
    tasks: async (options = {}) => {
      const given = toWire("flows.tasks", options, ["status", "version", ...PAGE]);
      const { tasks, total } = await this.#ask({ ...given, type: "list_tasks" }, true);
      return { tasks, total };
    },
    /** The node runs of a run, in order. */
    nodeRuns: async (runId, options = {}) => {
      const given = toWire("flows.nodeRuns", options, ["after", "limit"]);
      return (await this.#ask({ ...given, type: "node_runs", run_id: runId }, true)).node_runs;
    },
  };

  /** Workers, as `engine.workers` in Python. A program can be a worker with `register`, `poll` and `complete`. */
  workers = {
    /** Register a worker: one that is called at `url`, or, with `kind: "queue"`, one that polls. */
    register: async (id, url, services, options = {}) => {
      const given = toWire("workers.register", options, ["kind", "load"]);
      return (await this.#ask({ ...given, type: "register_worker", worker_id: id, url, services }, true)).worker;
    },
    /** Report that a worker is alive, and its load. */
    heartbeat: async (id, load = null) => {
      await this.#ask({ type: "heartbeat_worker", worker_id: id, load }, true);
    },
    /** The workers of a service whose last heartbeat is at most `ttl` seconds old. */
    list: async (options = {}) => {
      const given = toWire("workers.list", options, ["service", "ttl"]);
      return (await this.#ask({ ...given, type: "list_workers" }, true)).workers;
    },
    /** The worker with the least load of those that can be called, or null. */
    allocate: async (service) => (await this.#ask({ type: "allocate_worker", service }, true)).worker ?? null,
    /** Take a work item; resolves to null if there is none within `wait` seconds. */
    poll: async (id, services, wait = 25) =>
      (await this.#ask({ type: "poll_work", worker_id: id, services, wait }, true)).item ?? null,
    /** Complete a work item with its result, or with an `error`. */
    complete: async (itemId, result = null, options = {}) => {
      const given = toWire("workers.complete", options, ["error", "workerId"]);
      await this.#ask({ ...given, type: "complete_work", item_id: itemId, result });
    },
    /** Keep a work item for longer. */
    extend: async (itemId, id) => {
      await this.#ask({ type: "extend_work", item_id: itemId, worker_id: id }, true);
    },
  };

  /** Executors, the processes that execute bodies, as `engine.executors` in Python. */
  executors = {
    /** All executors. */
    list: async () => (await this.#ask({ type: "list_executors" }, true)).executors,
    /** Let an executor finish its bodies and exit. */
    drain: async (id) => {
      await this.#ask({ type: "drain_executor", executor_id: id }, true);
    },
  };

  /** Schedules, as `engine.schedules` in Python. */
  schedules = {
    /** Create a schedule, or change the one of this name. */
    put: async (name, options) => {
      const given = toWire("schedules.put", options, SCHEDULE);
      return (await this.#ask({ ...given, type: "put_schedule", name }, true)).schedule;
    },
    /** The next due times of a schedule with `cron` and `timezone`, or `every`, if it were put now. */
    preview: async (options) => {
      const given = toWire("schedules.preview", options, TIMES);
      return (await this.#ask({ ...given, type: "preview_schedule" }, true)).times;
    },
    /** All schedules, in the order of their names. */
    list: async () => (await this.#ask({ type: "list_schedules" }, true)).schedules,
    /** One schedule. */
    get: async (name) => (await this.#ask({ type: "get_schedule", name }, true)).schedule,
    /** Let a schedule fire no more until it is resumed. */
    pause: async (name) => (await this.#ask({ type: "pause_schedule", name }, true)).schedule,
    /** Let a paused schedule continue. */
    resume: async (name) => (await this.#ask({ type: "resume_schedule", name }, true)).schedule,
    /** Submit the run of a schedule now; resolves to a Ticket. Resent after a lost connection, and carried out once. */
    trigger: async (name, options = {}) => {
      const { request_id = null } = toWire("schedules.trigger", options, ["requestId"]);
      const reply = await this.#ask({ type: "trigger_schedule", name, request_id: request_id ?? drawId() }, true);
      return new Ticket(reply.run_id, Boolean(reply.joined), this);
    },
    /** Delete a schedule; its runs stay. */
    delete: async (name) => {
      await this.#ask({ type: "delete_schedule", name });
    },
  };

  /** Failing and dead webhooks, as `engine.webhooks` in Python. */
  webhooks = {
    /** Webhooks to which an event could not be delivered for a day, in the order of their ids. */
    dead: async (options = {}) => {
      const given = toWire("webhooks.dead", options, ["limit", "after"]);
      return (await this.#ask({ ...given, type: "dead_webhooks" }, true)).webhooks;
    },
    /** Webhooks whose last attempt failed and that are not dead, in the order of their ids. */
    failing: async (options = {}) => {
      const given = toWire("webhooks.failing", options, ["limit", "after"]);
      return (await this.#ask({ ...given, type: "failing_webhooks" }, true)).webhooks;
    },
    /** Deliver a failing or dead webhook now, from the first event that was not delivered on. */
    redeliver: async (id) => (await this.#ask({ type: "redeliver_webhook", webhook_id: id })).webhook,
    /** Delete a failing or dead webhook: its events are not delivered. */
    drop: async (id) => (await this.#ask({ type: "drop_webhook", webhook_id: id })).webhook,
  };

  /** The cluster behind the gateway. */
  cluster = {
    /** The nodes, and which of them leads. */
    status: async () => (await this.#ask({ type: "get_cluster" }, true)).cluster,
    /** Let the leader hand the leadership to another node. */
    stepDown: async () => {
      await this.#ask({ type: "step_down" });
    },
  };

  #addresses;
  #tried = 0; // attempts in this round, which is one attempt at each address
  #token;
  #filter;
  #follow;
  #parse;
  #patience;
  #WebSocket;
  #random;

  #socket = null;
  #connection = null;
  #connectionListeners = new Set();
  #connectionReports = [];
  #welcome = null;
  #calls = new Map();
  #number = 1;
  #failure = null;
  #closed = false;
  #ready;
  #failures = 0;
  #began = 0;
  #connectedAt = null;
  #heardAt = 0; // when the gateway last sent something
  #pause = null;

  #received = 0; // the gateway has sent everything up to this `seq`
  #whole = 0; // the ring has every event up to this `seq` that the filter passes
  #subscribing = [];
  #parts = [];
  #ring = new Ring(0);
  #ends = new Map();
  #listeners = new Set();

  /** See `connect`. */
  constructor(url, options) {
    const given = read("connect", options, CONNECT);
    const { token = null, filter = null, follow = true, exact = false, patience = 30, random = Math.random } = given;
    predicate(filter);
    if (filter?.types) {
      const why = "the state needs events of all types; pass types to events() or onEvent()";
      throw new GreenroomError("invalid", `connect: filter.types is not allowed: ${why}`);
    }
    if (typeof patience !== "number" || !(patience >= 0)) {
      const rule = "patience must be a number of seconds, at least 0";
      throw new GreenroomError("invalid", `connect: ${rule} (got ${shown(patience)})`);
    }
    if (isGiven(given.onConnection)) this.onConnection(given.onConnection);
    this.#addresses = addressesOf(url, random);
    this.#token = token;
    this.#filter = filter;
    this.#follow = follow;
    this.#parse = exact ? parsedMessage : JSON.parse;
    this.#patience = patience * 1000;
    this.#WebSocket = given.WebSocket ?? globalThis.WebSocket;
    this.#random = random;
    if (!this.#WebSocket) {
      const remedy = "pass a class, such as that of the package ws, as the option WebSocket";
      throw new GreenroomError("invalid", `connect: no global WebSocket; ${remedy}`);
    }
  }

  /** Whether the client is connected now: `connection.status === "connected"`. */
  get connected() {
    return this.#connection.status === "connected";
  }

  /** The state of the connection, with its address: a frozen object, replaced at each change. See `onConnection`. */
  get connection() {
    return this.#connection;
  }

  /**
   * Call `listener` with the state of the connection at every change. Returns a function that removes the listener.
   *
   * `url` is the address of the connection, or of the next attempt. The states, by `status`:
   * - `connecting`: an attempt to connect for the first time. Only a listener that was passed to `connect` receives it.
   * - `connected`: the gateway accepted the connection. Missed events follow.
   * - `reconnecting`: the connection was lost, or an attempt to reconnect failed. `reason` is the cause. The attempt
   *   with the number `attempt`, which is 1 after each loss, begins at `retryAt`. `heardAt` is when the gateway last sent
   *   something: the client's state is from then, though the loss may be noticed later. Both as `Date.now()`.
   * - `closed`: final. `error` is null after `close()`; otherwise it is what `connect` and all commands reject with.
   */
  onConnection(listener) {
    checkListener("onConnection", listener);
    const entry = { listener };
    this.#connectionListeners.add(entry);
    return () => void this.#connectionListeners.delete(entry);
  }

  /** Close the connection permanently: commands without a reply reject, iterators end. */
  close() {
    this.#closed = true;
    this.#fail(() => new GreenroomError("unavailable", "the client is closed"));
    this.#socket?.close(1000);
  }

  // Commands.

  /** Submit a run of a job; resolves to a Ticket. Resent after a lost connection, and carried out once. */
  async submit(job, options = {}) {
    return this.#start("submit", { type: "submit", job }, options);
  }

  async #start(method, command, options) {
    const given = toWire(method, options, SUBMIT);
    const request_id = given.request_id ?? drawId();
    const reply = await this.#ask({ ...command, ...given, request_id }, true);
    const expected = isGiven(given.request_id) || JOINING.includes(given.on_conflict);
    return new Ticket(reply.run_id, Boolean(reply.joined) && expected, this);
  }

  /**
   * Submit up to 10,000 runs together: objects with `job` and the options of `submit`. Resolves to a Ticket for each, in
   * their order. If one is refused, all are: it rejects with that error, whose `details` contain the `index`. With
   * `allOrNothing: false`, the error is in the place of that run's Ticket, and the other runs are created.
   */
  async submitMany(runs, options = {}) {
    const { allOrNothing = true } = read("submitMany", options, ["allOrNothing"]);
    if (!Array.isArray(runs)) {
      throw new GreenroomError("invalid", `submitMany: runs must be an array (got ${shown(runs)})`);
    }
    if (runs.length > MOST_RUNS) {
      const rule = `runs must have at most ${MOST_RUNS} entries (got ${runs.length})`;
      const details = { size: runs.length, limit: MOST_RUNS };
      throw new GreenroomError("too_large", `submitMany: ${rule}: divide them among several calls`, details);
    }
    const given = runs.map((run, index) => toWire(`submitMany: runs[${index}]`, run, ["job", ...SUBMIT]));
    const sent = given.map((run) => ({ ...run, request_id: run.request_id ?? drawId() }));
    const reply = await this.#ask({ type: "submit_many", runs: sent, all_or_nothing: allOrNothing }, true);
    return reply.submitted.map(({ run_id, joined, error }, index) => {
      if (error) return new GreenroomError(error.code, error.message, error.details);
      const expected = isGiven(given[index].request_id) || given[index].on_conflict === "join";
      return new Ticket(run_id, Boolean(joined) && expected, this);
    });
  }

  /** Submit a new run with the job, handle, lane, kind, parameters, needs, tags, priority and key of another one. */
  async rerun(runId, options = {}) {
    return this.#again("rerun", { type: "rerun", run_id: runId }, options);
  }

  /** The same, for a run that ended as failed, timed_out or rejected; others are a conflict. */
  async retry(runId, options = {}) {
    return this.#again("retry", { type: "retry", run_id: runId }, options);
  }

  async #again(method, command, options) {
    const given = toWire(method, options, ["requestId"]);
    const request_id = given.request_id ?? drawId();
    const reply = await this.#ask({ ...command, request_id }, true);
    return new Ticket(reply.run_id, Boolean(reply.joined) && isGiven(given.request_id), this);
  }

  /** Cancel all queued, running and suspended runs that match a filter; resolves to the counts. */
  async cancelMany(options = {}) {
    const given = toWire("cancelMany", options, [...BULK, "files"]);
    return (await this.#ask({ ...given, type: "cancel_many" })).bulk;
  }

  /** Submit all ended runs that match a filter again. Resent after a lost connection; no run is submitted twice. */
  async rerunMany(options = {}) {
    return this.#againMany("rerunMany", "rerun_many", options);
  }

  /** The same, for runs that ended as failed, timed_out or rejected. */
  async retryMany(options = {}) {
    return this.#againMany("retryMany", "retry_many", options);
  }

  async #againMany(method, type, options) {
    const given = toWire(method, options, [...BULK, "requestId"]);
    const request_id = given.request_id ?? drawId();
    return (await this.#ask({ ...given, type, request_id }, true)).bulk;
  }

  // Where a method takes the id of a run, it also takes a handle, which means the active run of that handle.

  /** Cancel a run; resolves to the run. `files`: "keep" or "delete". */
  async cancel(runId, files = "keep") {
    return (await this.#ask({ type: "cancel", run_id: runId, files })).run;
  }

  /** Send a message to a run. */
  async inject(runOrHandle, message) {
    return (await this.#ask({ type: "inject", run_or_handle: runOrHandle, message })).outcome;
  }

  /** Answer an interrupt, by its id; or by its run or handle and its `key`. */
  async answer(interruptId, data, options = {}) {
    const given = toWire("answer", options, ["key"]);
    return (await this.#ask({ type: "answer", interrupt_id: interruptId, data, ...given })).outcome;
  }

  /** Set a value that the nodes of a flow's run share. A node that waits for it continues. */
  async signal(runId, key, value) {
    await this.#ask({ type: "signal", run_id: runId, key, value });
  }

  /** A run, pending or ended. */
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

  /** Runs that match all filters, newest first. `before` is the id of the last run of the previous page. */
  async listRuns(options = {}) {
    const given = toWire("listRuns", options, [...RUNS, "limit", "before"]);
    const reply = await this.#ask({ ...given, type: "list_runs" }, true);
    return reply.runs ?? [];
  }

  /** The jobs that can be submitted, by name: each with its lane, and the JSON Schema of its parameters. */
  async listJobs() {
    return (await this.#ask({ type: "list_jobs" }, true)).jobs ?? [];
  }

  /** The files that a run has finished: their paths, and their sizes in bytes. */
  async listFiles(runId) {
    return (await this.#ask({ type: "list_files", run_id: runId }, true)).files ?? [];
  }

  /** An address from which a browser downloads a file of a run: with a token, once, within 30 seconds. */
  async fileUrl(runId, path) {
    const base = withSlash(this.#url).replace(/^ws/, "http");
    const url = new URL(`api/runs/${encodeURIComponent(runId)}/files/${encodeURIComponent(path)}`, base);
    if (this.#token !== null) {
      const headers = { authorization: `Bearer ${this.#token}`, "content-type": "application/json" };
      const response = await fetch(new URL("api/tickets", base), { method: "POST", headers, body: "{}" });
      const { ticket, code, message, details } = await response.json();
      if (!response.ok) throw new GreenroomError(code, message, details);
      url.searchParams.set("ticket", ticket);
    }
    return url.href;
  }

  /**
   * The events of a run after `after`, at most `limit`; without a limit all of them, fetched in pages. With `before`,
   * the last events before that `seq`.
   */
  async history(runId, options = {}) {
    const { after = 0, before, limit = Infinity } = read("history", options, ["after", "before", "limit"]);
    const backwards = isGiven(before);
    const pages = [];
    let next = backwards ? before : after;
    let left = limit;
    while (next !== undefined && left > 0) {
      const range = backwards ? { after, before: next } : { after: next };
      const page = { ...range, limit: Math.min(1000, left) };
      const reply = await this.#ask({ ...page, type: "history", run_id: runId }, true);
      pages.push(reply.events ?? []);
      left -= pages.at(-1).length;
      next = reply.next;
    }
    return (backwards ? pages.reverse() : pages).flat();
  }

  /** The engine's snapshot, as of now. */
  async snapshot() {
    return (await this.#ask({ type: "snapshot" }, true)).snapshot;
  }

  /** Set the draft parameters of a handle; null removes them. */
  async setParams(handle, params) {
    await this.#ask({ type: "set_params", handle, params });
  }

  /** Limit a lane: 0 pauses it, null leaves only the global limit. */
  async setConcurrency(lane, limit) {
    await this.#ask({ type: "set_concurrency", lane, limit });
  }

  /** Grant no more slots in a lane; its limit stays as it is. */
  async pauseLane(lane) {
    await this.#ask({ type: "pause_lane", lane });
  }

  /** End the pause of a lane. */
  async resumeLane(lane) {
    await this.#ask({ type: "resume_lane", lane });
  }

  /** Change rules of a lane, such as `rate` or `fairBy`; the others stay. Resolves to its rules. */
  async setLane(lane, rules) {
    return (await this.#ask({ type: "set_lane", lane, rules: toWire("setLane", rules, RULES) })).rules;
  }

  /** Change the priority of a run that has not started; resolves to the run. */
  async setPriority(runId, priority) {
    return (await this.#ask({ type: "set_priority", run_id: runId, priority })).run;
  }

  /** Set the global limit. */
  async setMaxConcurrent(limit) {
    await this.#ask({ type: "set_max_concurrent", limit });
  }

  /** Cancel the queued runs of a lane; resolves to their number. */
  async clearLane(lane) {
    return (await this.#ask({ type: "clear_lane", lane })).count;
  }

  /** Cancel the runs that wait in a handle; resolves to their number. */
  async clearHandle(handle) {
    return (await this.#ask({ type: "clear_handle", handle })).count;
  }

  /** Release a handle from a body that ignored its cancellation; resolves to whether there was one. */
  async releaseHandle(handle) {
    return (await this.#ask({ type: "release_handle", handle })).released;
  }

  /** Release the slots of all executing runs, whose bodies continue without one, and end draining. */
  async resetLanes() {
    await this.#ask({ type: "reset_lanes" });
  }

  /** Refuse new runs, and start no queued run; those that have begun continue. */
  async drain() {
    await this.#ask({ type: "drain" });
  }

  /** Accept new runs, and start queued ones again. */
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

  // Events.

  /**
   * An async iterator of the events from now on, or of those after the `seq` `after`. Where the gateway no longer
   * has the events, it yields `{ type: "snapshot", snapshot }` and then the events after that. `signal` is an
   * AbortSignal that ends it.
   */
  events(options = {}) {
    const { after = null, filter = null, signal = null } = read("events", options, ["after", "filter", "signal"]);
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
        if (this.#closed || !this.#failure) return;
        throw this.#failure();
      } else {
        const { promise, stop } = ring.change();
        signal?.addEventListener("abort", stop, { once: true });
        await promise;
        signal?.removeEventListener("abort", stop);
      }
    }
  }

  /**
   * Call `listener` with every event from now on, after `state` includes it, and with
   * `{ type: "snapshot", snapshot }` where the state restarts from a snapshot. Returns a function that removes the
   * listener. An exception that the listener throws is logged to the console.
   */
  onEvent(listener, filter = null) {
    checkListener("onEvent", listener);
    this.#mustFollow();
    const entry = { listener, passes: predicate(filter) };
    this.#listeners.add(entry);
    return () => void this.#listeners.delete(entry);
  }

  // Internals.

  /** The URL of the connection, or of the next attempt. */
  get #url() {
    const [{ url, slashed }] = this.#addresses;
    return slashed ? withSlash(url) : url;
  }

  #begin() {
    return new Promise((resolve, reject) => {
      this.#ready = { resolve, reject, done: false };
      this.#report({ status: "connecting", url: this.#url });
      this.#open();
    });
  }

  #report(connection) {
    this.#connection = Object.freeze(connection);
    this.#connectionReports.push(connection);
    if (this.#connectionReports.length > 1) return; // a listener caused this change; the loop below reports it next
    for (; this.#connectionReports.length > 0; this.#connectionReports.shift()) {
      for (const { listener } of [...this.#connectionListeners]) notify(listener, this.#connectionReports[0]);
    }
  }

  #mustFollow() {
    if (this.state === null) {
      throw new GreenroomError("invalid", "this client does not follow events: connect without follow: false");
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
      call.text = encoded(call.command); // before the client keeps the call: it sends what it keeps on each connection
      this.#calls.set(id, call);
      if (this.connected) this.#send(call);
      else this.#waitForConnection(call);
    });
  }

  #waitForConnection(call) {
    if (call.command.type === "wait" || call.timer !== undefined) return;
    call.timer = setTimeout(() => {
      const [{ url }, ...others] = this.#addresses;
      const target = others.length > 0 ? `any of ${others.length + 1} addresses` : url;
      const why = `no connection to ${target} for ${this.#patience / 1000} seconds`;
      this.#calls.delete(call.command.id);
      call.reject(
        mayHaveStarted(call)
          ? new OutcomeUnknown(call.command.type, why)
          : new GreenroomError("unavailable", `${why}; ${call.command.type} was not carried out`),
      );
    }, Math.min(this.#patience, LONGEST_TIMEOUT));
  }

  #send(call) {
    clearTimeout(call.timer);
    call.timer = undefined;
    const { text } = call;
    const limit = this.#welcome.limits.max_message_bytes ?? Infinity;
    if (text.length * 3 > limit) {
      const size = new TextEncoder().encode(text).length;
      if (size > limit) {
        this.#calls.delete(call.command.id);
        const message = `${call.command.type}: message must have at most ${limit} bytes (got ${size})`;
        const remedy = call.command.type === "submit_many" ? ": divide its runs among several calls" : "";
        call.reject(new GreenroomError("too_large", message + remedy, { size, limit }));
        return;
      }
    }
    if (call.command.type === "subscribe") this.#subscribing.push(call.command.after);
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

  /** There will be no further connection: reject everything that waits for one. */
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
      clearTimeout(call.repeating);
      const unknown = mayHaveStarted(call) || (call.sent && !call.repeatable);
      call.reject(unknown ? new OutcomeUnknown(call.command.type, makeError().message) : makeError());
    }
    this.#calls.clear();
    this.#ring.close();
    for (const waiting of this.#ends.values()) for (const { reject } of waiting) reject(makeError());
    this.#ends.clear();
    const error = makeError();
    this.#report({ status: "closed", url: this.#url, reason: error.message, error: this.#closed ? null : error });
  }

  // Connections, one after the other, each with a WebSocket.

  #open() {
    const [address] = this.#addresses;
    this.#began = Date.now();
    this.#connectedAt = null;
    let socket;
    try {
      socket = new this.#WebSocket(this.#url, SUBPROTOCOL);
    } catch (error) {
      const why = `invalid url ${address.url}: ${error.message}`;
      if (this.#addresses.length > 1) this.#lost(why, true); // such as ws: on a page that was loaded over https:
      else this.#fail(() => new GreenroomError("invalid", why));
      return;
    }
    this.#socket = socket;
    let why = "";
    let opened = false;
    const lose = (reason, mayRetryWithSlash = true) => {
      why ||= reason;
      clearTimeout(timer);
      clearInterval(watch);
      if (this.#socket === socket) this.#lost(why, opened || !mayRetryWithSlash);
      socket.close();
    };
    const timeOut = () => lose(`no reply within ${this.#limit / 1000} seconds`, this.#addresses.length === 1);
    const timer = setTimeout(timeOut, this.#limit);
    socket.onopen = () => {
      opened = address.reached = true;
      if (this.#token !== null) socket.send(JSON.stringify({ type: "auth", token: this.#token, id: 0 }));
      else socket.send(JSON.stringify({ type: "unsubscribe", id: 0 })); // a gateway that requires a token refuses it
    };
    // A page cannot send pings. After a quiet time, the client sends a command to see whether the gateway replies.
    let quiet = 0;
    const watch = setInterval(() => {
      quiet += 1;
      if (quiet === 2) socket.send(JSON.stringify({ type: "ping", id: 0 }));
      if (quiet === 3) lose(`no data for ${(3 * QUIET) / 1000} seconds`);
    }, QUIET);
    socket.onmessage = ({ data }) => {
      quiet = 0;
      if (this.#socket !== socket || this.#failure) return;
      this.#heardAt = Date.now();
      try {
        this.#take(this.#parse(data));
      } catch (error) {
        lose(error.message);
      }
      if (this.connected) clearTimeout(timer);
    };
    socket.onerror = (event) => {
      why ||= event.error?.message || event.message || "";
      // Node fires no `close` for an attempt that failed.
      if (!opened && this.#socket === socket) lose("connection failed");
    };
    socket.onclose = ({ code, reason }) => {
      clearTimeout(timer);
      clearInterval(watch);
      if (this.#socket !== socket) return;
      if (code === UNAUTHORIZED) {
        this.#fail(() => new GreenroomError("unauthorized", reason || "invalid or revoked token"));
      }
      this.#lost(why || reason || `connection closed with code ${code}`, opened);
    };
  }

  /** How long an attempt takes at most. Of several addresses, none must use up the client's patience. */
  get #limit() {
    const count = this.#addresses.length;
    return count === 1 ? CONNECT_WITHIN : Math.max(SHORTEST_LIMIT, Math.min(CONNECT_WITHIN, this.#patience / count));
  }

  #lost(why, opened) {
    this.#socket = null;
    const [address] = this.#addresses;
    if (!opened && !address.reached && !this.#failure && withSlash(address.url) !== address.url) {
      // A proxy may pass on only `prefix/`. A page cannot see the status of the refusal, so it tries both.
      address.slashed = !address.slashed;
      if (address.slashed) return this.#open();
    }
    this.#subscribing = [];
    this.#parts = [];
    if (this.#failure) return;
    const roundComplete = this.#useNextAddress(why);
    if (!this.#ready.done && roundComplete) {
      const [{ url }, ...others] = this.#addresses;
      const reasons = this.#addresses.map((one) => `${one.url}: ${one.failure}`).join("; ");
      const message =
        others.length > 0 ? `connection to every address failed: ${reasons}` : `connection to ${url} failed: ${why}`;
      this.#fail(() => new GreenroomError("unavailable", message));
      return;
    }
    for (const [id, call] of this.#calls) {
      call.parts = [];
      if (call.sent && !call.repeatable) {
        this.#calls.delete(id);
        call.reject(new OutcomeUnknown(call.command.type, "the connection was lost"));
      } else if (call.repeating === undefined) {
        call.unsure ||= call.sent;
        this.#waitForConnection(call);
      }
    }
    if (Date.now() - this.#began > STABLE) this.#failures = 0;
    let pause = 0;
    if (roundComplete) {
      const longest = Math.min(LONGEST_PAUSE, SHORTEST_PAUSE * 2 ** this.#failures++);
      pause = longest * (0.5 + this.#random() / 2);
    }
    this.#pause = setTimeout(() => this.#open(), pause);
    if (!this.#ready.done) {
      this.#report({ status: "connecting", url: this.#url });
      return;
    }
    const attempt = (this.#connection.attempt ?? 0) + 1;
    const retryAt = Date.now() + pause;
    this.#report({ status: "reconnecting", url: this.#url, reason: why, attempt, retryAt, heardAt: this.#heardAt });
  }

  /** Use the next address for the next attempt. Returns whether the round is complete. */
  #useNextAddress(why) {
    const lasted = this.#connectedAt !== null && Date.now() - this.#connectedAt > STABLE;
    if (this.#ready.done && lasted) this.#tried = 0; // the connection that was lost begins a round
    const address = this.#addresses.shift();
    address.failure = why;
    this.#addresses.push(address);
    this.#tried = (this.#tried + 1) % this.#addresses.length;
    return this.#tried === 0;
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
        return this.#checkReady();
      case "resync":
        this.#resync(message);
        return this.#checkReady();
    }
  }

  #welcomed(welcome) {
    this.#welcome = welcome;
    this.role = welcome.role;
    this.name = welcome.name ?? null;
    this.within = welcome.within ?? null;
    const waiting = [...this.#calls.values()];
    if (this.#follow) {
      const subscribe = { ...this.#subscription(this.#received), id: this.#number++ };
      this.#calls.set(subscribe.id, {
        command: subscribe,
        text: encoded(subscribe),
        repeatable: false,
        resolve: () => this.#filter && this.#readyWhenCaughtUp(),
        reject: () => {},
        parts: [],
      });
      this.#send(this.#calls.get(subscribe.id));
    } else {
      this.#setReady();
    }
    for (const call of waiting) if (call.repeating === undefined) this.#send(call);
    this.#connectedAt = Date.now();
    this.#report({ status: "connected", url: this.#url });
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

  /** The client is ready when the state includes everything up to the `seq` of the welcome. */
  #checkReady() {
    if (this.state !== null && !this.#filter && this.state.seq >= this.#welcome.seq) this.#setReady();
  }

  /** With a filter, the `seq` of the state shows that only after a reply. */
  async #readyWhenCaughtUp() {
    if (this.#ready.done) return;
    try {
      await this.#catchUp();
      this.#setReady();
    } catch (error) {
      this.#fail(() => error);
    }
  }

  /** The gateway sends the events that were committed before a command ahead of its reply. */
  #catchUp() {
    return this.#ask({ type: "list_runs", limit: 1 }, true);
  }

  /** Let the ring begin after `seq`, or later if the gateway no longer has those events. */
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
    if (!this.connected) {
      if (!FINAL.has(code)) throw new Error(message);
      this.#fail(() => new GreenroomError(code, message, details));
      return;
    }
    const call = this.#calls.get(id);
    if (call === undefined) return;
    const error = new GreenroomError(code, message, details);
    const pause = call.repeatable ? retryPause(error) : null;
    if (pause === null) {
      this.#calls.delete(id);
      call.reject(error);
    } else {
      this.#repeat(call, pause, error);
    }
    if (call.command.type !== "subscribe") return;
    if (!FINAL.has(code)) throw new Error(message);
    this.#fail(() => new GreenroomError(code, message, details));
    this.#socket?.close(1000);
  }

  /** Send a refused call again after `pause`, on the connection that there is then. */
  #repeat(call, pause, error) {
    const { id, type } = call.command;
    call.sent = false;
    call.parts = [];
    call.refusedAt ??= Date.now();
    if (Date.now() + pause > call.refusedAt + this.#patience && type !== "wait") {
      this.#calls.delete(id);
      call.reject(mayHaveStarted(call) ? new OutcomeUnknown(type, error.message) : error);
      return;
    }
    const send = () => {
      call.repeating = undefined;
      if (this.connected) this.#send(call);
      else this.#waitForConnection(call);
    };
    call.repeating = setTimeout(send, Math.min(pause, LONGEST_TIMEOUT));
  }

  // Following. gateway/client/following.py explains it.

  #subscribed(seq) {
    this.#subscribing.shift();
    this.#continueAfter(seq);
  }

  /** The next events follow `seq`. The ring restarts there, unless they overlap with it. */
  #continueAfter(seq) {
    this.#received = seq;
    if (this.#ring.after <= seq && seq <= this.#whole) return;
    this.#ring.restart(seq);
    this.#whole = seq;
  }

  #takeEvents({ from, to, events }) {
    const state = this.state;
    if (state === null || from !== this.#received) {
      throw new Error(`expected events after ${this.#received}, but received those after ${from}`);
    }
    const last = this.#ring.last;
    const folded = [];
    for (const event of events) {
      if (event.seq <= state.seq) continue;
      state.seq = event.seq - 1; // the events in between do not pass the filter or the limits of the token
      state.apply(event);
      folded.push(event);
      if (event.type !== "run_state_changed" || !ENDED.has(event.to)) continue;
      this.#hasEnded(event.run, state.runs.get(event.run));
    }
    this.#received = to;
    this.#whole = Math.max(this.#whole, to);
    state.seq = Math.max(state.seq, to);
    this.#ring.add(events.filter((event) => event.seq > last));
    for (const event of folded) this.#notifyListeners(event);
  }

  #resync({ snapshot, more }) {
    this.#parts.push(snapshot);
    if (more) return;
    const whole = joined(this.#parts);
    this.#parts = [];
    const start = Math.min(this.#received, ...this.#subscribing);
    const known = this.state;
    if (known !== null && known.epoch === whole.epoch && start <= whole.seq && whole.seq <= known.seq) {
      return this.#continueAfter(whole.seq); // the snapshot is older than the state, and the events after it follow
    }
    this.#received = this.#whole = whole.seq;
    const before = this.#ring;
    this.state = new Projection(whole);
    this.#ring = new Ring(whole.seq);
    before.close();
    for (const runId of [...this.#ends.keys()]) {
      const run = this.state.runs.get(runId);
      if (run === undefined || hasEnded(run)) this.#hasEnded(runId, run);
    }
    if (known !== null) this.#notifyListeners({ type: "snapshot", snapshot: whole });
  }

  #hasEnded(runId, run) {
    for (const { resolve } of this.#ends.get(runId) ?? []) resolve(run);
    this.#ends.delete(runId);
  }

  #notifyListeners(item) {
    for (const { listener, passes } of this.#listeners) {
      if (item.type === "snapshot" || passes(item)) notify(listener, item);
    }
  }
}

/** An accepted run: `id` is its id; `joined` is true if it existed before this call. */
export class Ticket {
  #client;

  constructor(id, joined, client) {
    this.id = id;
    this.joined = joined;
    this.#client = client;
  }

  /** The result of the run, once it has ended; rejects with RunEnded if it has none. */
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

  /** Cancel the run; resolves to the run. `files`: "keep" or "delete". */
  async cancel(files = "keep") {
    return this.#client.cancel(this.id, files);
  }
}

/** Whether this is a submit that may have been carried out. `unsure`: the reply to an earlier attempt was lost. */
const mayHaveStarted = (call) => (call.sent || call.unsure) && STARTS.has(call.command.type);

/** After how many milliseconds the gateway asks the client to repeat a command; null if it does not ask. */
function retryPause({ code, details }) {
  const seconds = details?.retry_after;
  if (code !== "unavailable" || typeof seconds !== "number" || !(seconds >= 0 && seconds < Infinity)) return null;
  return Math.max(SHORTEST_PAUSE, seconds * 1000);
}

/** The addresses in the argument of `connect`. Several are in a random order, so that clients spread over them. */
function addressesOf(url, random) {
  if (!Array.isArray(url)) return [newAddress(url)];
  if (url.length < 1 || url.length > MOST_ADDRESSES) {
    throw new GreenroomError("invalid", `connect: url must contain 1 to ${MOST_ADDRESSES} URLs (got ${url.length})`);
  }
  const known = new Map();
  for (const one of url) {
    const target = targetOf(one);
    if (known.has(target)) {
      const both = `${known.get(target)} and ${one}`;
      throw new GreenroomError("invalid", `connect: url contains the same address twice: ${both}; remove one`);
    }
    known.set(target, one);
  }
  const found = url.map(newAddress);
  for (let last = found.length - 1; last > 0; last--) {
    const other = Math.min(last, Math.floor(random() * (last + 1)));
    [found[last], found[other]] = [found[other], found[last]];
  }
  return found;
}

/** `slashed`: whether the client uses the URL with a slash at the end of its path. */
const newAddress = (url) => ({ url: withWs(url), slashed: false, reached: false, failure: null });
const withWs = (url) => String(url).replace(/^http/, "ws");

/** The same for URLs of the same address. */
function targetOf(url) {
  let address;
  try {
    address = new URL(withWs(url));
  } catch {
    address = null;
  }
  if (!address || !/^wss?:$/.test(address.protocol) || address.hash) {
    const rule = "each url must be like ws://127.0.0.1:8440 or wss://example.org";
    throw new GreenroomError("invalid", `connect: ${rule} (got ${shown(url)})`);
  }
  if (address.username || address.password) {
    const remedy = "URLs appear in logs: use the option token";
    throw new GreenroomError("invalid", `connect: url must not contain a token, because ${remedy}`);
  }
  return withSlash(address.href);
}

/** The URL with a slash at the end of its path. */
function withSlash(url) {
  const address = new URL(url);
  if (address.pathname.endsWith("/")) return url;
  address.pathname += "/";
  return address.href;
}

/** A new id for the option `requestId`: all submissions with the same one make one run. */
export function drawId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
