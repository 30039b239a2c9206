// A worker in JavaScript that takes work from the server's queue over HTTP. It needs Node 22 and no packages.
import { setTimeout as sleep } from "node:timers/promises";

const server = `${process.env.GREENROOM_URL ?? "http://127.0.0.1:8440"}/api`;
const token = process.env.GREENROOM_TOKEN; // a token with the role `worker`, where the server requires one
const id = `javascript-${process.pid}`;
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort()); // take no more work, complete what is in progress

const failed = new Set();
const services = {
  async report(shop) {
    if (shop === "lisbon" && !failed.has(shop)) {
      failed.add(shop);
      throw new Error("the shop does not answer"); // the first attempt; the node has max_retries
    }
    return { shop, revenue: 100 * shop.length };
  },
};

async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(server + path, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (response.status === 204) return null; // no work
  if (response.ok) return response.json();
  throw Object.assign(new Error(await response.text()), { status: response.status });
}

async function execute(item) {
  const beat = () => post("/queue/heartbeat", { queue_id: item.id, worker_id: id }).catch(console.error);
  const heartbeat = setInterval(beat, 20_000); // after 60 seconds without one, another worker gets the item
  const completion = { queue_id: item.id, worker_id: id, result: null, error: "" };
  try {
    const { input, params } = JSON.parse(item.input_json);
    completion.result = (await services[item.service](input, params, item.idempotency_key)) ?? null;
  } catch (error) {
    completion.error = error.message || "failed";
  } finally {
    clearInterval(heartbeat);
  }
  await post("/queue/complete", completion).catch((error) => {
    if (error.status !== 409) throw error; // 409: the item was cancelled, or went to another worker
  });
}

let registered = false;
while (!stop.signal.aborted) {
  try {
    if (!registered) await post("/workers/register", { id, services: Object.keys(services), type: "queue" });
    if (!registered) console.error(`${id} is registered`);
    registered = true;
    const item = await post("/queue/poll", { worker_id: id, services: Object.keys(services) }, stop.signal);
    if (item !== null) await execute(item);
  } catch (error) {
    if (stop.signal.aborted) break;
    console.error(error.message); // the server restarts, or has forgotten this worker
    registered = false;
    await sleep(1000);
  }
}
