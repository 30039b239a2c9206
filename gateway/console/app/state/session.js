/**
 * The connection of the page: its token, the client, and the live state. The page has one.
 *
 * `phase` decides what the page shows: `connecting`, `login` (a token is required, or was refused), or `open`. While it
 * is open, the client reconnects by itself; `connection` says how it stands.
 */

import { connect } from "../../greenroom.js";
import { computed, signal } from "../../vendor/ui.js";
import { HOME, SOCKET } from "./address.js";
import { freeze, synchronize } from "./clock.js";
import { compareFiles } from "./files.js";
import { Live } from "./live.js";

const KEY = "greenroom.token";
const PAUSE = 2_000;
const LONGEST = 1_000; // characters of a token; a gateway closes the connection at a much longer one
const RANKS = ["viewer", "operator", "admin"];

/** @typedef {import("../../greenroom.js").Client} Client */

/** @type {import("../../vendor/ui.js").Signal<"connecting" | "login" | "open">} */
export const phase = signal("connecting");
/** Why the page is not open, for people. */
export const trouble = signal("");
/** @type {import("../../vendor/ui.js").Signal<import("../../greenroom.js").Connection | null>} */
export const connection = signal(null);
/** Whether the connection is lost: the page shows an old state, and sends no commands. */
export const lost = computed(() => connection.value?.status === "reconnecting");
/** @type {import("../../vendor/ui.js").Signal<string | null>} */
export const role = signal(null);
/** The name of the token; empty if the gateway requires none. */
export const caller = signal("");

/** The patterns to which the token is limited; null if it has no limits. @type {import("../../vendor/ui.js").Signal<Client["within"]>} */
export const limits = signal(null);

export const live = new Live();

/** @type {Client | null} */
let current = null;
/** How many times the page tried to connect, or the person gave up an attempt: an older attempt changes nothing. */
let attempts = 0;

/** The client. Views exist only while there is one. @returns {Client} */
export function client() {
  if (current === null) throw new Error("the page is not connected");
  return current;
}

/**
 * Whether the token permits what requires this role. What requires an admin concerns all runs, which a token with limits
 * may not see.
 * @param {"viewer" | "operator" | "admin"} least
 */
export const may = (least) => RANKS.indexOf(role.value ?? "") >= RANKS.indexOf(least) && (least !== "admin" || limits.value === null);

/** Whether the token concerns all runs of the lanes that it may see. */
export const seesWholeLanes = () => !limits.value?.handles && !limits.value?.jobs;

/** Whether the token may see this handle, apart from limits of lanes and jobs. @param {string} name */
export const seesHandle = (name) => {
  const patterns = limits.value?.handles;
  return !patterns || patterns.some((one) => (one.endsWith("*") ? name.startsWith(one.slice(0, -1)) : one === name));
};

/** The limits of the token in words. */
export const limitsInWords = () => Object.entries(limits.value ?? {}).map(([what, patterns]) => `${what} ${patterns.join(", ")}`).join("; ");

/** Connect with the stored token, if there is one. */
export const start = () => open(sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY));

/**
 * Log in with a token. `keep`: for the next time that this browser is started, too.
 * @param {string} token
 * @param {boolean} keep
 */
export async function logIn(token, keep) {
  forget();
  if (token.length > LONGEST) return refuse(new Error(`this is no token: it has ${token.length.toLocaleString()} characters`), true);
  await open(token);
  if (phase.value === "open") (keep ? localStorage : sessionStorage).setItem(KEY, token);
}

/** Forget the token, and close the connection. */
export function logOut() {
  forget();
  attempts += 1;
  current?.close();
  current = null;
  trouble.value = "";
  phase.value = "login";
}

function forget() {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}

/** @param {string | null} token */
async function open(token) {
  const attempt = ++attempts;
  phase.value = "connecting";
  trouble.value = "";
  try {
    const made = await connect(SOCKET, { token, exact: true, onConnection: (state) => attempt === attempts && report(state) });
    if (attempt !== attempts) return made.close();
    current = made;
    role.value = made.role;
    caller.value = made.name ?? "";
    limits.value = made.within;
    live.follow(made);
    phase.value = "open";
  } catch (error) {
    if (attempt !== attempts) return;
    if (/** @type {any} */ (error).code === "unavailable") return repeat(token, error);
    refuse(error, token !== null || /** @type {any} */ (error).code !== "unauthorized");
  }
}

/** @param {string | null} token @param {unknown} error */
function repeat(token, error) {
  trouble.value = String(/** @type {Error} */ (error).message);
  const attempt = attempts;
  setTimeout(() => attempt === attempts && open(token), PAUSE);
}

/** Ask for a token, and say why, unless the person has not given one yet. @param {unknown} error @param {boolean} says */
function refuse(error, says) {
  trouble.value = says ? String(/** @type {Error} */ (error).message) : "";
  phase.value = "login";
}

/** @param {import("../../greenroom.js").Connection} state */
function report(state) {
  freeze(state.status === "reconnecting" ? state.heardAt : null);
  connection.value = state;
  if (state.status === "connected") synchronize(HOME);
  if (current === null) return;
  if (state.status === "connected") {
    role.value = current.role;
    limits.value = current.within;
    compareFiles();
  }
  if (state.status !== "closed" || !state.error) return;
  current = null; // the token was revoked
  refuse(state.error, true);
}
