/**
 * The types of `greenroom.js`.
 *
 * Options are in camelCase; snake_case (`request_id`) is accepted, too, and marked as deprecated. What the gateway
 * sends keeps the field names of the protocol (`created_at`).
 */

/**
 * Connect to a gateway, at `ws://`, `wss://`, `http://` or `https://`. Resolves when the client has the state; rejects
 * if the first connection fails.
 *
 * An array is the addresses of several nodes of one cluster. The client begins with a random one. If an address is
 * unreachable, or its connection is lost, the client tries the others at once.
 */
export function connect(url: Urls, options?: ConnectOptions & { follow?: true }): Promise<Client>;
export function connect(url: Urls, options: ConnectOptions & { follow: false }): Promise<Client<null>>;
export function connect(url: Urls, options: ConnectOptions): Promise<Client<Projection | null>>;

/** One URL, or those of several nodes of one cluster (at most 100). */
export type Urls = Url | readonly Url[];

/** A URL: text, or an object of the class `URL`. */
export type Url = string | { readonly href: string; toString(): string };

export interface ConnectOptions {
  /** The token. It is sent in the first message, never in the URL. */
  token?: string | null;
  /** `false`: do not follow the events. The client has no `state` and no `events()` then. */
  follow?: boolean;
  /** Follow only some handles, lanes or runs. */
  filter?: StateFilter | null;
  /** `true`: numbers that JavaScript would change, such as integers beyond 2^53, are of the class `ExactNumber`. */
  exact?: boolean;
  /** For how many seconds a command waits for a connection (30). */
  patience?: number;
  /** A listener for the state of the connection, from `connecting` on; see `Client.onConnection`. */
  onConnection?: ConnectionListener | null;
  /** @deprecated Use `onConnection`. */
  on_connection?: ConnectionListener | null;
  /** The class to use instead of the global one, such as that of the package `ws`. */
  WebSocket?: WebSocketClass;
  /** Returns a number from 0 to 1, for the pauses between attempts to connect and for the order of addresses. */
  random?: () => number;
}

/** A number of JSON by its text, for numbers that a JavaScript number cannot hold, such as 9007199254740993. */
export class ExactNumber {
  /** `source`: the text of a JSON number, or a BigInt. */
  constructor(source: string | number | bigint);
  /** The number as JSON has it. */
  readonly source: string;
  toString(): string;
  /** The nearest JavaScript number. */
  valueOf(): number;
  /** For `JSON.stringify`: exact where there is `JSON.rawJSON`, else a string. */
  toJSON(): unknown;
}

/** `JSON.parse`, but a number that `JSON.stringify` would write differently, such as 1.0, is an `ExactNumber`. */
export function parseExact(text: string): any;

/** `JSON.stringify` that writes an `ExactNumber` by its text. */
export function writeExact(value: unknown, indent?: number): string;

/** Which runs a client follows: those that match every field that is present. */
export interface StateFilter {
  handles?: readonly string[] | null;
  lanes?: readonly string[] | null;
  runs?: readonly string[] | null;
}

/** Which events to receive: those that match every field that is present. */
export interface EventFilter<Type extends EventType = EventType> extends StateFilter {
  types?: readonly Type[] | null;
}

/** The parts of a WebSocket class that the client uses. */
export type WebSocketClass = new (url: string, protocol: string) => {
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  send(data: string): void;
  close(code?: number): void;
};

/** The parts of an AbortSignal that the client uses. */
export interface AbortSignalLike {
  readonly aborted: boolean;
  addEventListener(type: "abort", listener: () => void, options?: { once?: boolean }): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

/** An attempt to connect for the first time. Only a listener that was passed to `connect` receives it. */
export interface Connecting {
  readonly status: "connecting";
  /** The address of the attempt. */
  readonly url: string;
}

/** The gateway accepted the connection. Missed events follow. */
export interface Connected {
  readonly status: "connected";
  /** The address of the connection. */
  readonly url: string;
}

/** The connection was lost, or an attempt to reconnect failed. */
export interface Reconnecting {
  readonly status: "reconnecting";
  /** The address of the next attempt. */
  readonly url: string;
  /** Why. */
  readonly reason: string;
  /** The number of the next attempt, which is 1 after each loss. */
  readonly attempt: number;
  /** When the next attempt begins, in milliseconds, as `Date.now()`. */
  readonly retryAt: number;
  /** When the gateway last sent something, in milliseconds: the state of the client is from then. */
  readonly heardAt: number;
}

/** Final: there will be no further connection. */
export interface Closed {
  readonly status: "closed";
  /** The last address. */
  readonly url: string;
  readonly reason: string;
  /** What all commands reject with; null after `close()`. */
  readonly error: GreenroomError | null;
}

/** The state of a connection. */
export type Connection = Connecting | Connected | Reconnecting | Closed;
export type ConnectionListener = (connection: Connection) => void;

/** A client of a gateway; `connect` makes one. A command resolves when the engine has committed it. */
export class Client<State extends Projection | null = Projection> {
  private constructor();

  /** The fold of all events received, or null with `follow: false`. */
  readonly state: State;
  /** The role of the token. */
  readonly role: Role;
  /** The name of the token; null if the gateway requires none. */
  readonly name: string | null;
  /** The patterns to which the token is limited, as in `{ handles: ["alice", "bob/*"] }`; null if it has no limits. */
  readonly within: { readonly [what in "handles" | "lanes" | "jobs"]?: readonly string[] } | null;
  /** Flows and their runs. */
  readonly flows: Flows;
  /** Workers. A program can be a worker with `register`, `poll` and `complete`. */
  readonly workers: Workers;
  /** Executors, the processes that execute bodies. */
  readonly executors: Executors;
  /** Schedules: runs that the engine submits at due times. */
  readonly schedules: Schedules;
  /** Webhooks to which an event could not be delivered: failing ones, and dead ones after a day. */
  readonly webhooks: Webhooks;
  /** The cluster behind the gateway. Its methods fail with `conflict` if the server is not a node of one. */
  readonly cluster: Cluster;
  /** Whether the client is connected now: `connection.status === "connected"`. */
  get connected(): boolean;
  /** The state of the connection: a frozen object, replaced at each change. */
  get connection(): Connection;

  /** Call `listener` with the state of the connection at every change. Returns a function that removes the listener. */
  onConnection(listener: ConnectionListener): () => void;
  /** Close the connection permanently: commands without a reply reject, iterators end. */
  close(): void;

  /** Submit a run of a job. Resent after a lost connection, and carried out once. */
  submit<Result = unknown>(job: string, options: SubmitOptions): Promise<Ticket<Result>>;
  /**
   * Submit up to 10,000 runs together. Resolves to a Ticket for each, in their order. If one is refused, all are: it
   * rejects with that error, whose `details` contain the `index`.
   */
  submitMany(runs: readonly NewRun[], options?: { allOrNothing?: true }): Promise<Ticket[]>;
  /** With `allOrNothing: false`, the error is in the place of a refused run's Ticket; the others are created. */
  submitMany(runs: readonly NewRun[], options: SubmitManyOptions): Promise<(Ticket | GreenroomError)[]>;
  /** Submit a new run with the job, handle, lane, kind, parameters, needs, tags, priority and key of another one. */
  rerun<Result = unknown>(runId: string, options?: AgainOptions): Promise<Ticket<Result>>;
  /** The same, for a run that ended as failed, timed_out or rejected; others are a conflict. */
  retry<Result = unknown>(runId: string, options?: AgainOptions): Promise<Ticket<Result>>;
  /** Cancel all queued, running and suspended runs that match a filter. */
  cancelMany(options: CancelManyOptions): Promise<BulkResult>;
  /** Submit all ended runs that match a filter again; the new runs wait in their handles. */
  rerunMany(options: RerunManyOptions): Promise<BulkResult>;
  /** The same, for runs that ended as failed, timed_out or rejected. */
  retryMany(options: RerunManyOptions): Promise<BulkResult>;

  // Where a method takes the id of a run, it also takes a handle, which means the active run of that handle.

  /** Cancel a run. */
  cancel(runId: string, files?: "keep" | "delete"): Promise<RunRecord>;
  /** Send a message to a run. */
  inject(runOrHandle: string, message: unknown): Promise<"accepted">;
  /** Answer an interrupt, by its id; or by its run or handle and its `key`. */
  answer(interruptId: string, data: unknown, options?: AnswerOptions): Promise<AnswerOutcome>;
  /** Set a value that the nodes of a flow's run share. A node that waits for it continues. */
  signal(runId: string, key: string, value: unknown): Promise<void>;
  /** A run, pending or ended. */
  getRun(runId: string): Promise<RunRecord>;
  /** A run once it has ended, or as it is after `timeout` seconds (15). */
  wait(runId: string, timeout?: number): Promise<RunRecord>;
  /** The last state of a run, once it has ended. */
  ended(runId: string): Promise<RunRecord>;
  /** Runs that match all filters, newest first. */
  listRuns(options?: ListRunsOptions): Promise<RunRecord[]>;
  /** The jobs that can be submitted, by name; flows are not among them. */
  listJobs(): Promise<JobInfo[]>;
  /** The files that a run has finished. */
  listFiles(runId: string): Promise<RunFile[]>;
  /** An address from which a browser downloads a file of a run: with a token, once, within 30 seconds. */
  fileUrl(runId: string, path: string): Promise<string>;
  /** The events of a run; without a limit all of them, fetched in pages. */
  history(runId: string, options?: HistoryOptions): Promise<GreenroomEvent[]>;
  /** The engine's snapshot, as of now. */
  snapshot(): Promise<Snapshot>;

  /** Set the draft parameters of a handle; null removes them. */
  setParams(handle: string, params: unknown): Promise<void>;
  /** Limit a lane: 0 pauses it, null leaves only the global limit. */
  setConcurrency(lane: string, limit: number | null): Promise<void>;
  /** Grant no more slots in a lane; its limit stays as it is. */
  pauseLane(lane: string): Promise<void>;
  /** End the pause of a lane. */
  resumeLane(lane: string): Promise<void>;
  /** Change rules of a lane; the others stay. Resolves to its rules. */
  setLane(lane: string, rules: LaneOptions): Promise<LaneRules>;
  /** Change the priority of a run that has not started; resolves to the run. */
  setPriority(runId: string, priority: number): Promise<RunRecord>;
  /** Set the global limit. */
  setMaxConcurrent(limit: number): Promise<void>;
  /** Cancel the queued runs of a lane; resolves to their number. */
  clearLane(lane: string): Promise<number>;
  /** Cancel the runs that wait in a handle; resolves to their number. */
  clearHandle(handle: string): Promise<number>;
  /** Release a handle from a body that ignored its cancellation; resolves to whether there was one. */
  releaseHandle(handle: string): Promise<boolean>;
  /** Release the slots of all executing runs, whose bodies continue without one, and end draining. */
  resetLanes(): Promise<void>;
  /** Refuse new runs, and start no queued run; those that have begun continue. */
  drain(): Promise<void>;
  /** Accept new runs, and start queued ones again. */
  resume(): Promise<void>;

  /**
   * The events from now on, or those after the `seq` `after`. Where the gateway no longer has the events, the iterator
   * yields a snapshot and then the events after that.
   */
  events<Type extends EventType = EventType>(
    options?: EventsOptions<Type>,
  ): AsyncGenerator<StreamItem<Type>, void, undefined>;
  /**
   * Call `listener` with every event from now on, after `state` includes it, and with a snapshot where the state
   * restarts from one. Returns a function that removes the listener.
   */
  onEvent<Type extends EventType = EventType>(
    listener: (item: StreamItem<Type>) => void,
    filter?: EventFilter<Type> | null,
  ): () => void;
}

/** `Client.flows`. */
export interface Flows {
  /** Check a definition. */
  check(definition: FlowDefinition): Promise<{ errors: string[]; warnings: string[] }>;
  /** Create a flow without versions. */
  create(name: string, description?: string): Promise<FlowRow>;
  /** Add a version to the flow of this name, which is created if it does not exist. */
  publish(name: string, definition: FlowDefinition, options?: VersionOptions): Promise<VersionRow>;
  /** Add a version to an existing flow, by its id or name. */
  addVersion(flow: string, definition: FlowDefinition, options?: VersionOptions): Promise<VersionRow>;
  /** A page of the flows, and how many there are. */
  list(options?: PageOptions): Promise<{ flows: FlowRow[]; total: number }>;
  /** A page of the versions of a flow, without their definitions. */
  versions(flow: string, options?: PageOptions): Promise<VersionRow[]>;
  /** One version, with its definition. */
  version(id: string): Promise<VersionRow>;
  /** Start a run of a flow, by its id or name. */
  start<Result = unknown>(flow: string, options?: StartFlowOptions): Promise<Ticket<Result>>;
  /** A run of a flow, with the values that its nodes share. */
  task(runId: string): Promise<FlowTask>;
  /** A page of the runs of flows, newest first, and how many there are. */
  tasks(options?: ListTasksOptions): Promise<{ tasks: FlowTask[]; total: number }>;
  /** The node runs of a run, in order. */
  nodeRuns(runId: string, options?: NodeRunsOptions): Promise<NodeRun[]>;
}

/** `Client.workers`. */
export interface Workers {
  /** Register a worker: one that is called at `url`, or, with `kind: "queue"`, one that polls. */
  register(id: string, url: string, services: readonly string[], options?: RegisterOptions): Promise<WorkerState>;
  /** Report that a worker is alive, and its load. */
  heartbeat(id: string, load?: number | null): Promise<void>;
  /** The workers of a service whose last heartbeat is at most `ttl` seconds old. */
  list(options?: ListWorkersOptions): Promise<WorkerState[]>;
  /** The worker with the least load of those that can be called, or null. */
  allocate(service: string): Promise<WorkerState | null>;
  /** Take a work item; resolves to null if there is none within `wait` seconds (25). */
  poll(id: string, services: readonly string[], wait?: number): Promise<QueueItem | null>;
  /** Complete a work item with its result, or with an `error`. */
  complete(itemId: string, result?: unknown, options?: CompleteOptions): Promise<void>;
  /** Keep a work item for longer. */
  extend(itemId: string, id: string): Promise<void>;
}

/** `Client.executors`. */
export interface Executors {
  /** All executors. */
  list(): Promise<ExecutorInfo[]>;
  /** Let an executor finish its bodies and exit. */
  drain(id: string): Promise<void>;
}

/** `Client.webhooks`. */
export interface Webhooks {
  /** Dead webhooks in the order of their ids, at most `limit` (100), after the id `after`. */
  dead(options?: { limit?: number; after?: string | null }): Promise<Webhook[]>;
  /** Webhooks whose last attempt failed and that are not dead, in the same order. */
  failing(options?: { limit?: number; after?: string | null }): Promise<Webhook[]>;
  /** Deliver a failing or dead webhook now, from the first event that was not delivered on. */
  redeliver(id: string): Promise<Webhook>;
  /** Delete a failing or dead webhook: its events are not delivered. */
  drop(id: string): Promise<Webhook>;
}

/** `Client.schedules`. */
export interface Schedules {
  /** Create a schedule, or change the one of this name. */
  put(name: string, options: PutScheduleOptions): Promise<ScheduleRecord>;
  /** The next due times of such a schedule, if it were put now, in Unix seconds; nothing is stored. */
  preview(options: PreviewScheduleOptions): Promise<number[]>;
  /** All schedules, in the order of their names. */
  list(): Promise<ScheduleRecord[]>;
  /** One schedule. */
  get(name: string): Promise<ScheduleRecord>;
  /** Let a schedule fire no more until it is resumed; what is due meanwhile never fires. */
  pause(name: string): Promise<ScheduleRecord>;
  /** Let a paused schedule continue with its next due time. */
  resume(name: string): Promise<ScheduleRecord>;
  /** Submit the run of a schedule now, once. Its due times stay the same. */
  trigger<Result = unknown>(name: string, options?: AgainOptions): Promise<Ticket<Result>>;
  /** Delete a schedule; its runs stay. */
  delete(name: string): Promise<void>;
}

/** `Client.cluster`. */
export interface Cluster {
  /** The nodes, and which of them leads; as the leader knows them, or as this node does without one. */
  status(): Promise<ClusterInfo>;
  /** Let the leader hand the leadership to the follower that has the most events. */
  stepDown(): Promise<void>;
}

/** A definition of a flow: an object, or a text of JSON or YAML. */
export type FlowDefinition = string | object;

export type OnConflict = "reject" | "queue" | "replace" | "join" | "coalesce";

/** The same for flows and the runs of a batch, which do not coalesce. */
export type OnConflictOfMany = Exclude<OnConflict, "coalesce">;

/** The options of every method that submits a run. Times are in seconds; `Infinity` is no limit, null the default. */
export interface RunOptions {
  /** JSON values. Without parameters, the run takes the draft of its handle. */
  params?: unknown;
  kind?: "start" | "continue";
  lane?: string | null;
  /** What to do if the handle is busy ("reject"). */
  onConflict?: OnConflict;
  /** Submits with the same request id are one run. The client draws one if none is passed. */
  requestId?: string | null;
  queueTimeout?: number | null;
  runTimeout?: number | null;
  deadline?: number | null;
  /** After how many seconds in the queue the engine reports that the run waits (2). */
  warnAfter?: number | null;
  /** Labels that an executor must have to execute the run. */
  needs?: readonly string[];
  /** From -100 to 100; higher ones are first (that of the job, else that of the lane). */
  priority?: number | null;
  /** What the lane's fairness and limits per key tell its runs apart by. */
  key?: string | null;
  /** The time before which the run does not start: a Date, or Unix seconds. */
  startAt?: Date | number | null;
  /** The same as a number of seconds from now, by the clock of the engine. */
  delay?: number | null;
  /** Whether a delayed run holds its handle from the submission on, not from its time on (false). */
  reserve?: boolean;
  /** At most 16 values by name, by which runs can be found. */
  tags?: Readonly<Record<string, string>>;
  /** The URL to which events of the run are delivered, of these types (["run_state_changed"]). */
  notify?: string | { url: string; types?: readonly string[] } | null;
  /** The trace that the run belongs to, as the header of W3C Trace Context has it. A bad value is ignored. */
  traceparent?: string | null;
  /** The state of that trace, as the header has it. */
  tracestate?: string | null;
  /** @deprecated Use `onConflict`. */
  on_conflict?: OnConflict;
  /** @deprecated Use `requestId`. */
  request_id?: string | null;
  /** @deprecated Use `queueTimeout`. */
  queue_timeout?: number | null;
  /** @deprecated Use `runTimeout`. */
  run_timeout?: number | null;
  /** @deprecated Use `warnAfter`. */
  warn_after?: number | null;
  /** @deprecated Use `startAt`. */
  start_at?: Date | number | null;
}

/** Changes of a lane's rules, for `Client.setLane`; null resets a rule to its default. */
export interface LaneOptions {
  /** The path of the parameter by which runs take turns, such as "tenant". */
  fairBy?: string | null;
  /** How many runs a key starts in its turn (1). */
  weights?: Record<string, number> | null;
  limitPerKey?: number | null;
  /** A count per period: "100/min", "5/s", "1/10s". */
  rate?: string | null;
  /** How many runs can start at once within the rate (1). */
  burst?: number | null;
  ratePer?: "lane" | "key" | null;
  /** After how many seconds of waiting a run has gained one step of priority (60); null for never. */
  age?: number | null;
  /** The priority of runs for which neither the submission nor the job has one (0). */
  priority?: number | null;
  /** The URL to which events of later runs of the lane are delivered, of these types (["run_state_changed"]). */
  notify?: string | { url: string; types?: readonly string[] } | null;
  /** @deprecated Use `fairBy`. */
  fair_by?: string | null;
  /** @deprecated Use `limitPerKey`. */
  limit_per_key?: number | null;
  /** @deprecated Use `ratePer`. */
  rate_per?: "lane" | "key" | null;
}

/** The options of `Client.submit`. */
export interface SubmitOptions extends RunOptions {
  handle: string;
}

/** One run of `Client.submitMany`: the job, and the options of `Client.submit`. */
export interface NewRun extends SubmitOptions {
  job: string;
  onConflict?: OnConflictOfMany;
  /** @deprecated Use `onConflict`. */
  on_conflict?: OnConflictOfMany;
}

/** The options of `Client.submitMany`. */
export interface SubmitManyOptions {
  /** Whether one refused run refuses all (true). */
  allOrNothing?: boolean;
  /** @deprecated Use `allOrNothing`. */
  all_or_nothing?: boolean;
}

/** The options of `flows.start`. */
export interface StartFlowOptions extends Omit<RunOptions, "needs"> {
  onConflict?: OnConflictOfMany;
  /** @deprecated Use `onConflict`. */
  on_conflict?: OnConflictOfMany;
  /** Without a handle, the run gets its own handle. */
  handle?: string | null;
  /** 0 is the latest published version. */
  version?: number;
}

/** The options of a run that `schedules.put` does not have: its runs start at their times, each with its own id. */
type OnceOptions =
  | "requestId"
  | "request_id"
  | "startAt"
  | "start_at"
  | "delay"
  | "reserve"
  | "traceparent"
  | "tracestate";

/** The options of `Schedules.preview`: one of `cron` and `every`. */
export interface PreviewScheduleOptions {
  /** Minute, hour, day of month, month and day of week, as local times of `timezone`. */
  cron?: string | null;
  /** An interval in seconds. */
  every?: number | null;
  /** A name of the IANA database ("UTC"). */
  timezone?: string;
}

/** The options of `schedules.put`: either `cron` or `every` is required. */
export interface PutScheduleOptions extends Omit<RunOptions, OnceOptions>, PreviewScheduleOptions {
  job: string;
  /** Without a handle, the runs have the handle `schedule:<name>`. */
  handle?: string | null;
  /** Each firing is up to this many seconds late (0). */
  jitter?: number;
  /** Which of the due times fire that were missed ("latest"). */
  missed?: "skip" | "latest" | "all";
  /** At most how many, with `missed: "all"` (100). */
  missedLimit?: number;
  /** @deprecated Use `missedLimit`. */
  missed_limit?: number;
  /** Null leaves an existing schedule paused or not. */
  paused?: boolean | null;
}

/** The options of `Client.answer`. */
export interface AnswerOptions {
  key?: string | null;
}

export type AnswerOutcome = "resolved" | "not_found" | "already_resolved";

/** The runs that match all of these. */
export interface RunFilter {
  handle?: string | null;
  lane?: string | null;
  job?: string | null;
  /** The name of a flow. */
  flow?: string | null;
  status?: RunStatus | readonly RunStatus[] | null;
  /** A run must have all of these. */
  tags?: Readonly<Record<string, string>> | null;
  /** Created at this time or later: a Date, or Unix seconds. */
  since?: Date | number | null;
  /** Created before this time: a Date, or Unix seconds. */
  until?: Date | number | null;
  /** A part of the error; case matters. */
  error?: string | null;
  /** The id of the run whose body has called the runs. */
  parent?: string | null;
}

/** The options of `Client.rerun`, `Client.retry` and `Schedules.trigger`. */
export interface AgainOptions {
  /** Calls with the same request id submit each run once. The client draws one if none is passed. */
  requestId?: string | null;
  /** @deprecated Use `requestId`. */
  request_id?: string | null;
}

/** The options of bulk operations. At least one filter is required. */
export interface BulkOptions extends RunFilter {
  /** If more runs match, the operation fails and changes nothing (1000, at most 100000). */
  limit?: number | null;
  /** Only count the runs that match. */
  dryRun?: boolean;
  /** @deprecated Use `dryRun`. */
  dry_run?: boolean;
}

/** The options of `Client.cancelMany`. */
export interface CancelManyOptions extends BulkOptions {
  files?: "keep" | "delete";
}

/** The options of `Client.rerunMany` and `Client.retryMany`. */
export interface RerunManyOptions extends BulkOptions, AgainOptions {}

/** The options of `Client.listRuns`. */
export interface ListRunsOptions extends RunFilter {
  limit?: number | null;
  /** The id of the last run of the previous page. */
  before?: string | null;
}

/** The options of `Client.history`. */
export interface HistoryOptions {
  /** Only events with a higher `seq`. */
  after?: number;
  /** Only events with a lower `seq`, and of these the last `limit` ones. */
  before?: number | null;
  limit?: number;
}

/** The options of `Client.events`. */
export interface EventsOptions<Type extends EventType = EventType> {
  /** Begin after this `seq`. */
  after?: number | null;
  filter?: EventFilter<Type> | null;
  /** Ends the iterator. */
  signal?: AbortSignalLike | null;
}

/** The options of `flows.list` and `flows.versions`. */
export interface PageOptions {
  limit?: number;
  offset?: number;
}

/** The options of `flows.tasks`. */
export interface ListTasksOptions extends PageOptions {
  status?: RunStatus | readonly RunStatus[] | null;
  /** The id of a version. */
  version?: string | null;
}

/** The options of `flows.nodeRuns`. */
export interface NodeRunsOptions {
  /** Only node runs with a higher `number`. */
  after?: number;
  limit?: number;
}

/** The options of `flows.publish` and `flows.addVersion`. */
export interface VersionOptions {
  version?: number | null;
  status?: "draft" | "published";
}

/** The options of `workers.register`. */
export interface RegisterOptions {
  kind?: "http" | "queue";
  load?: number;
}

/** The options of `workers.list`. */
export interface ListWorkersOptions {
  service?: string | null;
  ttl?: number | null;
}

/** The options of `workers.complete`. */
export interface CompleteOptions {
  error?: string;
  workerId?: string | null;
  /** @deprecated Use `workerId`. */
  worker_id?: string | null;
}

/** An accepted run. `Result` is the type of its result. */
export class Ticket<Result = unknown> {
  private constructor();

  /** The id of the run. */
  readonly id: string;
  /** Whether the run existed before the call. */
  readonly joined: boolean;
  /** The result of the run, once it has ended; rejects with RunEnded if it has none. */
  result(): Promise<Result>;
  /** Whether the run ends within `seconds` (15). */
  wait(seconds?: number): Promise<boolean>;
  /** Cancel the run. */
  cancel(files?: "keep" | "delete"): Promise<RunRecord>;
}

/** A command that the gateway refused or that could not be sent. */
export class GreenroomError extends Error {
  constructor(code: ErrorCode, message: string, details?: Record<string, unknown>);
  readonly code: ErrorCode;
  readonly details: Record<string, unknown>;
}

/** The connection was lost before the reply arrived: the gateway may or may not have carried out the command. */
export class OutcomeUnknown extends GreenroomError {
  constructor(command: string, why: string);
}

/** A run ended without a result. `run` is its last state; `run.status` is how it ended. */
export class RunEnded extends Error {
  constructor(run: RunRecord);
  readonly run: RunRecord;
}

/** The types of events. */
export const EVENT_TYPES: readonly EventType[];

/** The most ended runs that a snapshot and the state contain: those that ended last. */
export const KEPT_ENDED_RUNS: number;

/** A new id for the option `requestId`: all submissions with the same one make one run. */
export function drawId(): string;

/** Whether the status of a run is final. */
export function hasEnded(run: Pick<RunRecord, "status">): boolean;

/** The snapshot after these events, which must follow `snapshot` without a gap. */
export function fold(snapshot: Snapshot, events: Iterable<GreenroomEvent>): Snapshot;

/** The state after a snapshot and the events that follow it: `apply` each event in order. */
export class Projection {
  constructor(snapshot: Snapshot);
  readonly epoch: string;
  readonly seq: number;
  readonly maxConcurrent: number;
  readonly draining: boolean;
  readonly runs: ReadonlyMap<string, RunRecord>;
  readonly interrupts: ReadonlyMap<string, InterruptState>;
  readonly executors: ReadonlyMap<string, ExecutorState>;
  readonly schedules: ReadonlyMap<string, ScheduleRecord>;
  /** Apply the next event. Throws if its `seq` is not the next one. */
  apply(event: GreenroomEvent): void;
  /** The whole state as of `seq`, equal to the engine's snapshot. */
  snapshot(): Snapshot;
  /** The rules of a lane; without any, an empty object. */
  rules(lane: string): LaneRules;
  /** The numbers of runs as of `seq`: without lists, so it takes constant time per lane. */
  counts(): Counts;
  /** A handle as in a snapshot, or null. */
  handle(name: string): HandleState | null;
  /** The names of the handles of a snapshot, in no order that means anything. */
  handleNames(): IterableIterator<string>;
}

/** The numbers of a snapshot. `runs` are those of the pending runs by status; a status without runs is absent. */
export interface Counts {
  seq: number;
  engine: EngineState;
  lanes: { [lane: string]: LaneCounts };
  runs: { [status in RunStatus]?: number };
}

/** The numbers of a lane: slots in use, and runs queued in it. */
export interface LaneCounts {
  limit: number | null;
  generation: number;
  executing: number;
  queued: number;
  paused: boolean;
}

export type EventType = GreenroomEvent["type"];

/** What `events()` yields and `onEvent` passes on: an event, or a snapshot in place of events that were missed. */
export type StreamItem<Type extends EventType = EventType> =
  | Extract<GreenroomEvent, { type: Type }>
  | { type: "snapshot"; snapshot: Snapshot };

// Generated from the Python types; do not edit below this line.

/** The code of an error; see docs/reference/errors.md. */
export type ErrorCode =
  | "invalid"
  | "unauthorized"
  | "forbidden"
  | "not_found"
  | "conflict"
  | "handle_locked"
  | "not_interactive"
  | "not_streaming"
  | "compacting"
  | "no_active_run"
  | "too_large"
  | "rate_limited"
  | "queue_full"
  | "internal"
  | "draining"
  | "unavailable";

/** The status of a run. */
export type RunStatus =
  | "queued"
  | "running"
  | "suspended"
  | "cancelling"
  | "succeeded"
  | "failed"
  | "cancelled"
  | "timed_out"
  | "rejected";

/**
 * A run's status changed. `from` is null for a new run; only then `job`, `kind`, `params`, `needs`,
 * `tags`, `priority`, `key`, `not_before` and `parent` are set.
 *
 * `place` is the run's current place; null while the run waits in its handle, before the others if `front`.
 * A new run with `waiting_for` `time` waits for its `not_before` outside its lane and, without a place,
 * outside its handle.
 * `interactive` is set when a body starts or ends. `executor` is set when a body starts in another process
 * than the engine's. `retry_after` is set if the attempt failed with this `error` and is retried: the
 * seconds until the next attempt enters its lane. `holds_handle`: the run has ended, but its abandoned body
 * still executes and keeps the handle.
 */
export interface RunStateChanged {
  type: "run_state_changed";
  seq: number;
  at: number;
  by: string;
  run: string;
  handle: string;
  lane: string;
  from: RunStatus | null;
  to: RunStatus;
  attempt: number;
  reason: string | null;
  place: number | null;
  job?: string;
  kind?: string;
  params?: unknown;
  needs?: string[];
  tags?: Record<string, string>;
  priority?: number;
  key?: string;
  not_before?: number;
  parent?: string;
  front?: boolean;
  waiting_for?: string;
  interactive?: boolean;
  executor?: string;
  result?: unknown;
  error?: string;
  retry_after?: number;
  holds_handle?: boolean;
}

/**
 * A run changed without a transition; absent fields are unchanged.
 *
 * A `place` makes a queued run the handle's admitted run. `params` are those of a later submission, which
 * the run takes only as long as it has not begun. Of a queued run, `waiting_for` is `executor` while it has
 * room in its lane, but no executor can take it; `time` while it holds its handle, and waits for its
 * `not_before` outside its lane; `handle` if the handle is taken at its `not_before`, so that it waits in
 * the handle, before the others if `front`.
 */
export interface RunChanged {
  type: "run_changed";
  seq: number;
  at: number;
  by: string;
  run: string;
  handle: string;
  lane: string;
  place?: number;
  priority?: number;
  params?: unknown;
  waiting_for?: string;
  front?: boolean;
  detached?: boolean;
  interactive?: boolean;
  streaming?: boolean;
  compacting?: boolean;
}

/** The progress of a body; it replaces the previous progress. */
export interface RunProgress {
  type: "run_progress";
  seq: number;
  at: number;
  by: string;
  run: string;
  handle: string;
  lane: string;
  attempt: number;
  done: number | null;
  total: number | null;
  stats?: Record<string, unknown>;
}

/** A log line of a body. */
export interface RunLog {
  type: "run_log";
  seq: number;
  at: number;
  by: string;
  run: string;
  handle: string;
  lane: string;
  attempt: number;
  text: string;
  level: string;
}

/**
 * A queued run has waited long: the seconds, the number of runs ahead, and the runs that block it.
 * `reason`: why no executor has room for it, if it waits for an executor.
 */
export interface RunWaiting {
  type: "run_waiting";
  seq: number;
  at: number;
  by: string;
  run: string;
  handle: string;
  lane: string;
  waited: number;
  ahead: number;
  blockers: string[];
  reason?: string;
}

/** A message was accepted for a run; it is stored until the body takes it. */
export interface RunMessage {
  type: "run_message";
  seq: number;
  at: number;
  by: string;
  run: string;
  handle: string;
  lane: string;
  message: unknown;
}

/** A signal set `key` in the shared data of a flow's run; a node that waits for it continues. */
export interface RunSignal {
  type: "run_signal";
  seq: number;
  at: number;
  by: string;
  run: string;
  handle: string;
  lane: string;
  key: string;
  value: unknown;
}

/** A flow's run has reached a node that takes time; `visit` counts the visits of the node. */
export interface NodeStarted {
  type: "node_started";
  seq: number;
  at: number;
  by: string;
  run: string;
  handle: string;
  lane: string;
  node: string;
  kind: string;
  visit: number;
}

/**
 * One attempt of a node, or of a `branch` of it, has ended: `ok`, `error`, `cancelled` or `timeout`.
 *
 * `action` selects the edge that the run takes next; null if the node has not ended with this attempt.
 */
export interface NodeRan {
  type: "node_ran";
  seq: number;
  at: number;
  by: string;
  run: string;
  handle: string;
  lane: string;
  node: string;
  kind: string;
  visit: number;
  attempt: number;
  status: string;
  branch?: string;
  action?: string;
  error?: string;
  worker?: string;
  started_at: number;
}

/** A body opened an interrupt. */
export interface InterruptOpened {
  type: "interrupt_opened";
  seq: number;
  at: number;
  by: string;
  run: string;
  handle: string;
  lane: string;
  interrupt: string;
  key: string;
  data: unknown;
  deadline: number | null;
}

/**
 * An interrupt was closed; `outcome` is `answered`, `timed_out`, `cancelled`, `shutdown`, `withdrawn`
 * (the body no longer waits) or `ended` (the body has ended).
 */
export interface InterruptClosed {
  type: "interrupt_closed";
  seq: number;
  at: number;
  by: string;
  run: string;
  handle: string;
  lane: string;
  interrupt: string;
  outcome: string;
  answer?: unknown;
}

/** The URL of a receiver, and the types of the events that it gets. */
export interface Notify {
  url: string;
  types?: string[];
}

/**
 * How a lane chooses its next run; see the module's docstring.
 *
 * `fair_by` is the path of the parameter by which its runs take turns, such as `tenant` or `user.id`; a run
 * that was submitted with a key has that key instead. `limit_per_key` bounds the executing runs of one key.
 * `rate_per`: whether the lane has one bucket, or each key its own. `age` is `null` if waiting does not
 * raise a run's priority. `priority` is that of runs for which neither the submission nor the job has one.
 * `notify` is where the events of its later runs are delivered.
 */
export interface LaneRules {
  fair_by?: string;
  weights?: Record<string, number>;
  limit_per_key?: number;
  rate?: string;
  burst?: number;
  rate_per?: "key" | "lane";
  age?: number | null;
  priority?: number;
  notify?: Notify;
}

/** A lane's limit, generation, pause or rules changed; all are the new values. */
export interface LaneChanged {
  type: "lane_changed";
  seq: number;
  at: number;
  by: string;
  lane: string;
  limit: number | null;
  generation: number;
  paused?: boolean;
  rules?: LaneRules;
}

/** A handle has a new draft (`params`, if present), or was released from the ended run `freed`. */
export interface HandleChanged {
  type: "handle_changed";
  seq: number;
  at: number;
  by: string;
  handle: string;
  params?: unknown;
  freed?: string;
}

/** The global limit or draining changed; both are the new values. */
export interface EngineChanged {
  type: "engine_changed";
  seq: number;
  at: number;
  by: string;
  max_concurrent: number;
  draining: boolean;
}

/** A flow was created, or a version of it, whose status is `draft` or `published`. */
export interface FlowChanged {
  type: "flow_changed";
  seq: number;
  at: number;
  by: string;
  flow: string;
  name: string;
  version?: number;
  status?: string;
}

/** A worker registered, is `online` again, is `offline`, or was `forgotten`. */
export interface NodeWorkerChanged {
  type: "node_worker_changed";
  seq: number;
  at: number;
  by: string;
  worker: string;
  url: string;
  services: string[];
  kind: string;
  status: string;
}

/**
 * An executor is `attached`, `disconnected` (its bodies continue, and it can attach again), `draining`,
 * or `gone`. `slots` is null if it has no limit of its own. Its bodies can execute for up to `ttl` seconds
 * after its last acknowledged beat. `start` is the start id of its process, which is another one after each
 * start of a process under the same id.
 */
export interface ExecutorChanged {
  type: "executor_changed";
  seq: number;
  at: number;
  by: string;
  executor: string;
  status: string;
  slots?: number;
  labels?: string[];
  jobs?: string[];
  ttl?: number;
  start?: string;
}

/** A node of the cluster has `joined` its leader, or `left`. */
export interface NodeChanged {
  type: "node_changed";
  seq: number;
  at: number;
  by: string;
  node: string;
  status: string;
  address: string;
  version?: string;
}

/** A node leads the cluster from here on. Its `term` is higher than any before. */
export interface LeaderChanged {
  type: "leader_changed";
  seq: number;
  at: number;
  by: string;
  node: string;
  address: string;
  term: number;
}

/**
 * A schedule, as clients see it. Times are Unix seconds.
 *
 * `id` is another one whenever its times are changed. `source` is `code` for a schedule that is declared in
 * code, `config` for one of the configuration, and `api` for any other. `every` counts from `since`. `next`
 * are the next due times, without jitter; none while it is paused. `last_run` is the run of the firing at
 * `last_fired`; `null` if it was refused, and then `last_error` is the reason.
 */
export interface ScheduleRecord {
  name: string;
  job: string;
  handle: string;
  params: unknown;
  options: Record<string, unknown>;
  cron: string | null;
  every: number | null;
  timezone: string;
  jitter: number;
  missed: string;
  missed_limit: number;
  id: string;
  source: string;
  paused: boolean;
  since: number;
  decided_until: number;
  next: number[];
  last_fired: number | null;
  last_run: string | null;
  last_error: string | null;
}

/** A schedule was put, paused or resumed: `state` is its new record; null if it was deleted. */
export interface ScheduleChanged {
  type: "schedule_changed";
  seq: number;
  at: number;
  by: string;
  schedule: string;
  state: ScheduleRecord | null;
}

/**
 * A schedule has submitted a run for its due time `at_planned`, or was `triggered` by a caller.
 *
 * `run` is the run; with `joined`, one that existed before. If the submission was refused, `refused` is the
 * error code and `error` the message. `next` are the next due times.
 */
export interface ScheduleFired {
  type: "schedule_fired";
  seq: number;
  at: number;
  by: string;
  schedule: string;
  at_planned: number;
  run?: string;
  joined?: boolean;
  refused?: string;
  error?: string;
  triggered?: boolean;
  next?: number[];
}

/**
 * A schedule has missed due times, and leaves out `count` of them: all up to `until`. `next` are the next
 * due times, the first of which can have passed: they fire next.
 */
export interface ScheduleMissed {
  type: "schedule_missed";
  seq: number;
  at: number;
  by: string;
  schedule: string;
  count: number;
  until: number;
  next?: number[];
}

/**
 * A webhook of a run is `dead` after `attempts` failed ones, the last with this `error`; or a caller
 * `redelivered` or `dropped` it. It is not an event of its run: the run may be long over.
 */
export interface WebhookChanged {
  type: "webhook_changed";
  seq: number;
  at: number;
  by: string;
  webhook: string;
  of_run: string;
  to: "dead" | "dropped" | "redelivered";
  attempts?: number;
  error?: string;
}

/** The engine as a whole. `executing` counts the slots in use, `queued` the queued runs. */
export interface EngineState {
  max_concurrent: number;
  executing: number;
  queued: number;
  draining: boolean;
}

/**
 * A lane. `limit` is `null` if only the global limit applies; `queued` is in order of place, whatever the
 * priorities. `rules` are those by which the lane chooses its next run.
 */
export interface LaneState {
  limit: number | null;
  generation: number;
  executing: string[];
  queued: string[];
  paused?: boolean;
  rules?: LaneRules;
}

/** What a user interface shows for a handle. */
export type HandleStatus =
  | "Idle"
  | "Queued"
  | "Running"
  | "Done"
  | "Failed"
  | "Cancelled";

/** A handle: its status, its admitted run, the runs that wait in it, and its draft. */
export interface HandleState {
  status: HandleStatus;
  locked: boolean;
  active_run: string | null;
  waiting: string[];
  params: unknown;
}

/** An open interrupt. */
export interface InterruptState {
  run: string;
  key: string;
  data: unknown;
  opened_at: number;
  deadline: number | null;
}

/**
 * One run, as clients see it. Times are Unix seconds.
 *
 * `fence` is the seq of the event with which its last body started; it only grows for a handle. `executor`
 * is where that body executes; `null` for the engine's own process. `needs` are the labels that an executor
 * must have to execute the run: those of the job and of the submission. `key` is what a lane's fairness and
 * limits per key tell its runs apart by. The run does not start before `not_before`; until then, a queued
 * run has `waiting_for` `time`. `parent` is the run whose body called it. `placed_at` is when it got its
 * place, if that was not when it was created.
 */
export interface RunRecord {
  id: string;
  handle: string;
  lane: string;
  job: string;
  kind: string;
  params: unknown;
  needs: string[];
  tags: Record<string, string>;
  priority: number;
  key: string | null;
  not_before: number | null;
  parent: string | null;
  status: RunStatus;
  reason: string | null;
  attempt: number;
  place: number | null;
  placed_at: number | null;
  detached: boolean;
  interactive: boolean;
  streaming: boolean;
  compacting: boolean;
  waiting_for: string | null;
  executor: string | null;
  fence: number | null;
  progress: Record<string, unknown> | null;
  result: unknown;
  error: string | null;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  updated_at: number;
}

/**
 * An executor: `attached`, `disconnected` or `draining`, its limit of bodies (`null` for no limit of its
 * own), its labels, its jobs, the ttl of its lease in seconds, and the start id of its process, which is
 * another one after each start of a process under the same id.
 */
export interface ExecutorState {
  status: string;
  slots: number | null;
  labels: string[];
  jobs: string[];
  ttl: number | null;
  start: string;
}

/**
 * Everything that clients follow, exactly as of `seq`.
 *
 * `runs` contains the pending runs in order of submission, then the last ended runs in the order in which
 * they ended. A delayed run that has to wait in its handle at its time counts as submitted at that time.
 */
export interface Snapshot {
  epoch: string;
  seq: number;
  engine: EngineState;
  lanes: Record<string, LaneState>;
  handles: Record<string, HandleState>;
  interrupts: Record<string, InterruptState>;
  runs: Record<string, RunRecord>;
  executors: Record<string, ExecutorState>;
  schedules: Record<string, ScheduleRecord>;
}

/** A flow: a name with versions of a graph. */
export interface FlowRow {
  id: string;
  name: string;
  description: string;
  created_at: number;
}

/** One version of a flow. `definition` is the JSON text of its graph; empty in lists. */
export interface VersionRow {
  id: string;
  flow: string;
  version: number;
  status: "draft" | "published";
  created_at: number;
  definition: string;
}

/** A run of a flow: the run, the version that it walks, its shared data, and its current node. */
export interface FlowTask {
  run: RunRecord;
  flow: FlowRow;
  version: VersionRow;
  shared: Record<string, unknown>;
  node: string | null;
  last_action: string | null;
  steps: number;
  request_id: string | null;
}

/**
 * The record of one attempt of a node, or of a branch of it.
 *
 * `number` counts the node runs of the run from 1, `visit` the visits of the node, `attempt` the attempts of
 * this visit and branch. `last`: whether this is the last of these attempts.
 */
export interface NodeRun {
  run: string;
  number: number;
  node: string;
  visit: number;
  attempt: number;
  branch: string | null;
  status: "cancelled" | "error" | "ok" | "timeout";
  prep: unknown;
  input: unknown;
  output: unknown;
  error: string | null;
  action: string | null;
  worker: string | null;
  worker_url: string | null;
  started_at: number;
  finished_at: number;
  last: boolean;
}

/**
 * The state of a worker. `listed_as` is the type and the URL that the compatible task API shows, if they
 * differ from `kind` and `url`.
 */
export interface WorkerState {
  id: string;
  url: string;
  services: string[];
  kind: "http" | "queue";
  load: number;
  last_heartbeat: number;
  status: "offline" | "online";
  listed_as?: [string, string];
}

/**
 * A queue item as a worker receives it. `traceparent` and `tracestate` are set if the flow is traced.
 *
 * `id` identifies the delivery: a second delivery of the same work has another id, so that a late completion
 * of the first one is recognized.
 */
export interface QueueItem {
  id: string;
  run: string;
  node: string;
  service: string;
  key: string;
  input: unknown;
  params: Record<string, unknown>;
  visible_for: number;
  traceparent?: string;
  tracestate?: string;
}

/**
 * An executor with its id and the number of its bodies, for `engine.executors.list()`; the other fields
 * are those of `ExecutorState`.
 */
export interface ExecutorInfo {
  id: string;
  status: string;
  slots: number | null;
  bodies: number;
  labels: string[];
  jobs: string[];
  start: string;
}

/**
 * A job that can be submitted: its name, and the lane of its runs that are submitted without one.
 *
 * `params` is the JSON Schema of its parameters, without fields for a job that takes none, and null for a
 * job whose type of parameters names no fields.
 */
export interface JobInfo {
  name: string;
  lane: string;
  params: Record<string, unknown> | null;
}

/** The leader: its node, its address, and the term of its lease. */
export interface LeaderInfo {
  id: string;
  address: string;
  term: number;
}

/**
 * A node of a cluster. Its `role` is `leader`, `follower`, `looking` for a leader, or `unknown` while no
 * leader is known. `seq` is the last event that it has, and `lag` the age of its state in seconds; both are
 * 0 if they are not known.
 */
export interface NodeInfo {
  id: string;
  address: string;
  role: string;
  version: string;
  seq: number;
  lag: number;
}

/**
 * A cluster as one node, `node`, knows it. `leader` is null while none is known. Only the leader knows
 * all followers.
 */
export interface ClusterInfo {
  node: string;
  role: string;
  leader: LeaderInfo | null;
  nodes: NodeInfo[];
}

/** A run on which a bulk operation failed, with the error's code and message. */
export interface Refusal {
  run: string;
  code: string;
  message: string;
}

/**
 * The result of a bulk operation: how many runs matched its filter, for how many it was carried out, and
 * how many were refused. `refusals` are the first of these. A dry run only counts the matches.
 */
export interface BulkResult {
  matched: number;
  done: number;
  refused: number;
  refusals: Refusal[];
}

/**
 * A file that a run has finished, by its path in the handle's folder. `folder` is the id of the data
 * folder that has it; it is empty for the engine's own, and only there is the `size` in bytes known.
 */
export interface RunFile {
  path: string;
  size: number | null;
  folder: string;
}

/**
 * The delivery of one run's events to one URL.
 *
 * `delivered` is the seq up to which it is complete. `attempts` are the failed ones of the next event, since
 * `failing_since`, `error` is the last failure, and `next_at` is when the next attempt is due. `dead_at` is
 * when the engine gave up.
 */
export interface Webhook {
  id: string;
  run: string;
  url: string;
  types: string[];
  delivered?: number;
  attempts?: number;
  failing_since?: number;
  error?: string;
  next_at?: number;
  dead_at?: number;
}

/**
 * The role of a token. A viewer reads; an operator also starts, cancels, answers and clears runs; an
 * admin also changes limits, resets and drains. A worker can only take and complete work. An executor can
 * only attach as an executor, which no other role permits.
 */
export type Role =
  | "executor"
  | "worker"
  | "viewer"
  | "operator"
  | "admin";

/** Any event; `type` names its kind. */
export type GreenroomEvent =
  | RunStateChanged
  | RunChanged
  | RunProgress
  | RunLog
  | RunWaiting
  | RunMessage
  | RunSignal
  | NodeStarted
  | NodeRan
  | InterruptOpened
  | InterruptClosed
  | LaneChanged
  | HandleChanged
  | EngineChanged
  | FlowChanged
  | NodeWorkerChanged
  | ExecutorChanged
  | NodeChanged
  | LeaderChanged
  | ScheduleChanged
  | ScheduleFired
  | ScheduleMissed
  | WebhookChanged;
