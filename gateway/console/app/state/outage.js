/**
 * Whether the engine is unavailable, for instance because its store is down. No event can tell that, so the page knows it
 * from what it asks for itself. The next event shows that the engine commits again.
 */

import { signal } from "../../vendor/ui.js";
import { now } from "./clock.js";
import { client, connection, phase } from "./session.js";

/** @typedef {{ message: string, at: number, seq: number }} Outage `seq`: the last event before it was noted */

/** @type {import("../../vendor/ui.js").Signal<Outage | null>} */
const noted = signal(null);

/** Note the error of a command or of a reading. @param {{ code?: string, message: string }} error */
export function noteOutage({ code, message }) {
  if (code !== "unavailable" || connection.peek()?.status !== "connected" || phase.peek() !== "open") return;
  noted.value = { message, at: now.peek(), seq: client().state?.seq ?? 0 };
}

/** The outage that was noted, unless an event has arrived since then. A view that shows it renders after each frame. */
export function outage() {
  return noted.value?.seq === client().state?.seq ? noted.value : null;
}
