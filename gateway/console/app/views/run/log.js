/**
 * The log of a run. It shows the end, and follows it until one scrolls up: then it stays as it is, and says how many
 * lines are new.
 */

import { html, useLayoutEffect, useRef, useSignal } from "../../../vendor/ui.js";
import { Moment, Nothing } from "../../parts/basic.js";
import { Text } from "../../parts/text.js";
import { exact } from "../../state/clock.js";
import { client } from "../../state/session.js";
import { report } from "../../state/toasts.js";

/** @typedef {import("../../../greenroom.js").GreenroomEvent} GreenroomEvent */
/** @typedef {import("../../../greenroom.js").RunLog} RunLog */

const PAGE = 200;
const MOST = 2000; // lines that are shown while it follows
const PART = 1000; // events that a download reads at once
const NEAR = 4; // pixels from the end that count as the end

/** @param {{ id: string, events: readonly GreenroomEvent[] }} props */
export function Log({ id, events }) {
  const text = useSignal("");
  const level = useSignal("");
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  /** The seq of the first line to show, and of the last one while it does not follow. */
  const from = useSignal(/** @type {number | null} */ (null));
  const until = useSignal(/** @type {number | null} */ (null));
  const below = useRef(/** @type {number | null} */ (null)); // what was between the top and the end when earlier lines were asked for

  const all = events.filter((event) => event.type === "run_log");
  const wanted = text.value.toLowerCase();
  const lines = all.filter((line) => (!level.value || line.level === level.value) && line.text.toLowerCase().includes(wanted));
  const end = until.value === null ? lines.length : after(lines, until.value);
  const first = from.value === null ? Math.max(0, end - PAGE) : Math.max(after(lines, from.value - 1), until.value === null ? end - MOST : 0);
  const shown = lines.slice(first, end);
  const added = lines.length - end;

  useLayoutEffect(() => {
    const element = place.current;
    if (!element) return;
    if (until.value === null) element.scrollTop = element.scrollHeight;
    else if (below.current !== null) element.scrollTop = element.scrollHeight - below.current;
    below.current = null;
  }, [first, end, until.value, wanted, level.value, all.length > 0]);

  if (all.length === 0) return html`<${Nothing}>The body has logged nothing.<//>`;
  const hold = () => {
    from.value ??= shown[0]?.seq ?? null;
    until.value ??= shown.at(-1)?.seq ?? 0;
  };
  const scrolled = (/** @type {any} */ event) => {
    const { scrollHeight, scrollTop, clientHeight } = event.currentTarget;
    if (scrollHeight - scrollTop - clientHeight <= NEAR) until.value = null;
    else hold();
  };
  const follow = () => (from.value = until.value = null);
  const earlier = () => {
    const element = /** @type {HTMLElement} */ (place.current);
    below.current = element.scrollHeight - element.scrollTop;
    hold();
    from.value = lines[Math.max(0, first - 5 * PAGE)].seq;
  };
  const levels = [...new Set(all.map((line) => line.level))].sort();
  return html`<div class="log-tools">
      <input type="search" aria-label="Lines with the text" placeholder="lines with …" value=${text.value}
        onInput=${(/** @type {any} */ event) => (follow(), (text.value = event.currentTarget.value))} />
      ${levels.length > 1 &&
      html`<div class="chips" role="group" aria-label="Levels">${levels.map(
        (one) => html`<button key=${one} class="chip" aria-pressed=${level.value === one}
          onClick=${() => (follow(), (level.value = level.value === one ? "" : one))}>${one}</button>`,
      )}</div>`}
      <span class="spread"></span>
      ${until.value !== null && html`<button onClick=${follow}>Follow${added > 0 ? `: ${added.toLocaleString()} new` : ""}</button>`}
      <${Download} id=${id} />
    </div>
    ${first > 0 && html`<button class="quiet" onClick=${earlier}>${first} earlier lines</button>`}
    ${shown.length === 0 && html`<${Nothing}>No line matches.<//>`}
    <div ref=${place} class="log mono" role="log" aria-label="Log" tabindex="0" onScroll=${scrolled}><ol>
      ${shown.map(
        (line) => html`<li key=${line.seq} class=${line.level}>
          <${Moment} at=${line.at} /> <span class="level">${line.level}</span> <${Text} value=${line.text} lines />
        </li>`,
      )}
    </ol></div>`;
}

/** How many lines are not after this seq. @param {RunLog[]} lines @param {number} seq */
function after(lines, seq) {
  let low = 0;
  let high = lines.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lines[middle].seq <= seq) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The whole log as a text file, which is read part by part. @param {{ id: string }} props */
function Download({ id }) {
  const reading = useSignal(false);
  const download = async () => {
    reading.value = true;
    const parts = await report(() => whole(id));
    reading.value = false;
    if (parts) save(parts, `log-${id}.txt`);
  };
  return html`<button class="quiet" disabled=${reading.value} title="The whole log as a text file, also lines that this page has not read" onClick=${download}>
    ${reading.value ? "Reading…" : "Download log"}
  </button>`;
}

/** @param {string} id */
async function whole(id) {
  const lines = [];
  for (let seq = 0, more = true; more; ) {
    const found = await client().history(id, { after: seq, limit: PART });
    for (const event of found) if (event.type === "run_log") lines.push(`${exact(event.at)} ${event.level} ${event.text}\n`);
    more = found.length === PART;
    seq = found.at(-1)?.seq ?? seq;
  }
  return lines;
}

/** @param {string[]} parts @param {string} name */
function save(parts, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
