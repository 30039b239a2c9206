/**
 * The time, as signals that change every second, and how times and spans are written.
 *
 * It is the time of the server, since it is compared with times of events, and the clock of the browser can be wrong.
 */

import { signal } from "../../vendor/ui.js";

const DAY = 86_400;

const EXACT = 2_000; // `Date` has whole seconds, and takes time to arrive
let ahead = 0; // of the server's clock, in milliseconds
let frozen = false;

/** Unix seconds. */
export const clock = signal(Date.now() / 1000);
/** The time of the state that the page shows: now, or when the connection was lost. */
export const now = signal(clock.value);

setInterval(tick, 1000);

function tick() {
  clock.value = (Date.now() + ahead) / 1000;
  if (!frozen) now.value = clock.value;
}

/** Measure the server's clock by the `Date` of this page. Without an answer, the last measure remains. @param {string} url */
export async function synchronize(url) {
  const before = Date.now();
  const response = await fetch(url, { method: "HEAD", cache: "no-store" }).catch(() => null);
  const date = Date.parse(response?.headers.get("date") ?? "");
  if (Number.isNaN(date)) return;
  const difference = date + 500 - (before + Date.now()) / 2;
  ahead = Math.abs(difference) > EXACT ? difference : 0;
  tick();
}

/** Let `now` stand still at a time of the browser's clock in milliseconds, or follow the clock again. @param {number | null} at */
export function freeze(at) {
  frozen = at !== null;
  tick();
  if (at !== null) now.value = (at + ahead) / 1000;
}

const time = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const dayOfYear = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });

/** A local time: with the date only where it is not today's. @param {number} at */
export function moment(at) {
  const date = new Date(at * 1000);
  const today = new Date(now.peek() * 1000);
  if (date.toDateString() === today.toDateString()) return time.format(date);
  const format = date.getFullYear() === today.getFullYear() ? day : dayOfYear;
  return `${format.format(date)}, ${time.format(date)}`;
}

/** The exact time in UTC. @param {number} at */
export const exact = (at) => new Date(at * 1000).toISOString();

/** A span of seconds in its two largest units. @param {number} seconds */
export function span(seconds) {
  const rounded = Math.max(0, seconds);
  if (rounded < 1) return `${Math.round(rounded * 1000)} ms`;
  if (rounded < 10) return `${rounded.toFixed(1)} s`;
  if (rounded < 60) return `${Math.floor(rounded)} s`;
  if (rounded < 3600) return `${Math.floor(rounded / 60)} min ${Math.floor(rounded % 60)} s`;
  if (rounded < DAY) return `${Math.floor(rounded / 3600)} h ${Math.floor((rounded % 3600) / 60)} min`;
  return `${Math.floor(rounded / DAY)} d ${Math.floor((rounded % DAY) / 3600)} h`;
}
