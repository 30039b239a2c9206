// A program that uses the types of the client. The tests compile it, and run it against a gateway whose job `add`
// returns the sum of two numbers.

import {
  connect,
  fold,
  hasEnded,
  GreenroomError,
  OutcomeUnknown,
  Projection,
  RunEnded,
  type Client,
  type Connection,
  type GreenroomEvent,
  type RunRecord,
  type Snapshot,
  type StreamItem,
  type SubmitOptions,
  type Ticket,
} from "greenroom";

declare const process: { argv: string[] };
declare const console: { log(text: string): void };

const url = process.argv[2] ?? "ws://127.0.0.1:8440";

function shown(connection: Connection): string {
  switch (connection.status) {
    case "connecting":
    case "connected":
      return `${connection.status} at ${connection.url}`;
    case "reconnecting":
      return `${connection.reason}; attempt ${connection.attempt} to ${connection.url} at ${new Date(connection.retryAt).toISOString()}`;
    case "closed":
      return connection.error === null ? "closed" : `closed: ${connection.error.code}`;
  }
}

function subject(event: GreenroomEvent): string {
  switch (event.type) {
    case "run_state_changed":
      return `${event.run}: ${event.from ?? "new"} to ${event.to}`;
    case "run_progress":
      return `${event.done ?? 0} of ${event.total ?? "unknown"}`;
    case "run_log":
      return `${event.level.toUpperCase()} ${event.text}`;
    case "run_waiting":
      return event.blockers.join(", ");
    case "run_changed":
    case "run_message":
    case "run_signal":
    case "node_started":
    case "node_ran":
    case "interrupt_opened":
    case "interrupt_closed":
      return event.handle;
    case "lane_changed":
      return `${event.lane}: ${event.limit?.toFixed() ?? "no limit"}`;
    case "handle_changed":
      return event.freed ?? event.handle;
    case "engine_changed":
      return event.draining ? "draining" : `at most ${event.max_concurrent}`;
    case "flow_changed":
      return event.name;
    case "node_worker_changed":
      return event.services.join(", ");
    case "executor_changed":
      return `${event.executor}: ${event.status}, ${event.slots?.toFixed() ?? "no limit"}, ${event.labels?.join() ?? ""}`;
    case "node_changed":
      return `${event.node} at ${event.address}: ${event.status}, ${event.version ?? ""}`;
    case "leader_changed":
      return `${event.node} at ${event.address}, term ${event.term.toFixed()}`;
    case "schedule_changed":
      return `${event.schedule}: ${event.state?.next.join() ?? "deleted"}`;
    case "schedule_fired":
      return `${event.schedule} for ${event.at_planned.toFixed()}: ${event.run ?? event.refused ?? ""}`;
    case "schedule_missed":
      return `${event.schedule}: ${event.count.toFixed()} up to ${event.until.toFixed()}`;
    case "webhook_changed":
      return `${event.webhook} of ${event.of_run}: ${event.to}, ${event.attempts?.toFixed() ?? ""} ${event.error ?? ""}`;
    default: {
      const none: never = event; // the cases above are all types of events
      return none;
    }
  }
}

async function add(client: Client, a: number, b: number): Promise<number> {
  const options: SubmitOptions = {
    handle: "alice",
    params: { a, b },
    onConflict: "queue",
    requestId: `${a} + ${b}`,
    runTimeout: Infinity,
    needs: [],
  };
  const ticket: Ticket<number> = await client.submit<number>("add", options);
  if (ticket.joined) throw new Error("the run existed before");
  const sum = await ticket.result();
  return sum + 0;
}

function latest(client: Client): RunRecord | undefined {
  return [...client.state.runs.values()].filter(hasEnded).at(-1);
}

const client = await connect(url, { onConnection: (connection) => console.log(shown(connection)) });
const stop = client.onEvent((item) => item.type === "snapshot" || subject(item), { handles: ["alice"] });
console.log(`sum ${await add(client, 1, 2)}`);
console.log(`status ${latest(client)?.status}`);
for await (const item of client.events({ after: 0, filter: { types: ["run_state_changed"] } })) {
  if (item.type === "snapshot") continue;
  if (item.to === "succeeded") break; // `to` needs no further narrowing: the filter has one type
}
try {
  await client.submit("none", { handle: "bob", on_conflict: "join" });
} catch (error) {
  if (error instanceof OutcomeUnknown || error instanceof RunEnded) throw error;
  if (error instanceof GreenroomError) console.log(`refused ${error.code}`);
}
const snapshot: Snapshot = await client.snapshot();
const executor: string | undefined = client.state.executors.get("local-1")?.status;
console.log(`executor ${executor}`);
const same: boolean = fold(snapshot, []).seq === new Projection(snapshot).snapshot().seq;
const items: StreamItem[] = [{ type: "snapshot", snapshot }];
console.log(`same ${same} ${items.length}`);
await client.setLane("side", { weights: null, burst: null, ratePer: null, priority: null, fair_by: null });
const old: RunRecord[] = await client.listRuns({ since: new Date(0), until: new Date(1000) });
console.log(`old ${old.length}`);
const { flows, total } = await client.flows.list({ limit: 5 });
console.log(`flows ${flows.length} of ${total}`);
const { leader, nodes } = await client.cluster.status().catch(() => ({ leader: null, nodes: [] }));
console.log(`leader ${leader?.address} of ${nodes.map((node) => node.role).length}`);
stop();
client.close();

const commands = await connect(new globalThis.URL(url), { follow: false });
const none: null = commands.state;
console.log(`state ${none} for the role ${commands.role}`);
commands.close();

const addresses: readonly string[] = [url];
const clustered: Client = await connect(addresses);
console.log(`one of ${addresses.length}: ${clustered.connection.url === url}`);
clustered.close();
