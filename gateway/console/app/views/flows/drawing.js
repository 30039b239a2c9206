/**
 * The graph of a flow, and what it says as a table, for people who do not see it. With `walk`, each node shows its state
 * in a run, and the edges that the run took stand out.
 */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useSignal } from "../../../vendor/ui.js";
import { Status } from "../../parts/basic.js";
import { DrawnIcon, Icon } from "../../parts/icon.js";
import { MOST_FITTED, PanZoom } from "../../parts/panzoom.js";
import { Text, visible } from "../../parts/text.js";
import { compareFiles } from "../../state/files.js";
import { label, layout, short } from "./layout.js";
import { BEGIN, leads, outline } from "./outline.js";
import { taken } from "./walked.js";

/** @typedef {import("./layout.js").Layout} Layout */
/** @typedef {import("./outline.js").Place} Place */
/** @typedef {import("./walked.js").NodeState} NodeState */
/** @typedef {import("./walked.js").Walked} Walked */

const SIGNS = /** @type {const} */ ({
  executor: "chip",
  local: "function",
  choice: "choice",
  parallel: "bars",
  foreach: "loop",
  flow_ref: "nested",
  timer: "clock",
  wait_event: "mail",
  approval: "approval",
});

const CURRENT = new Set(["queued", "running", "suspended", "cancelling"]);

/**
 * @param {object} props
 * @param {any} props.definition
 * @param {Walked} [props.walk]
 * @param {string} [props.chosen] the path of the chosen node
 * @param {(path: string) => void} [props.onChoose]
 */
export function FlowGraph({ definition, walk, chosen = "", onChoose }) {
  const drawn = useMemo(() => outline(definition), [definition]);
  const found = useSignal(/** @type {Layout | null} */ (null));
  const problem = useSignal("");
  useEffect(() => {
    let wanted = true;
    found.value = null;
    layout(drawn).then(
      (made) => wanted && (found.value = made),
      (error) => {
        if (wanted) problem.value = `the graph cannot be drawn: ${error.message}`;
        compareFiles(); // its library can be missing
      },
    );
    return () => void (wanted = false);
  }, [drawn]);
  return html`<div class="flow-graph">
    ${problem.value && html`<p class="error-text" role="alert">${problem.value}</p>`}
    ${found.value && html`<${Picture} drawn=${drawn} made=${found.value} walk=${walk} chosen=${chosen} onChoose=${onChoose} />`}
    <${Words} drawn=${drawn} walk=${walk} chosen=${chosen} onChoose=${onChoose} />
  </div>`;
}

/** @param {{ drawn: import("./outline.js").Outline, made: Layout, walk?: Walked, chosen: string, onChoose?: (path: string) => void }} props */
function Picture({ drawn, made, walk, chosen, onChoose }) {
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const group = useRef(/** @type {SVGGElement | null} */ (null));
  const moves = useRef(/** @type {PanZoom | null} */ (null));
  const known = useMemo(() => new Map(), [made]);
  useLayoutEffect(() => {
    const begin = made.boxes.get(BEGIN) ?? { x: 0, y: 0 };
    moves.current = new PanZoom(/** @type {any} */ (frame.current), /** @type {any} */ (group.current), made, begin);
    return () => moves.current?.close();
  }, [made]);
  const clicked = useRef("");
  useEffect(() => {
    const box = made.boxes.get(chosen);
    if (box && chosen !== clicked.current) moves.current?.center(box); // it was chosen in the table
  }, [chosen]);

  /** A node or an edge is rendered again only if what it shows has changed. @param {string} key @param {string} shown @param {() => any} make */
  const kept = (key, shown, make) => {
    const before = known.get(key);
    if (before?.shown === shown) return before.node;
    const node = make();
    known.set(key, { shown, node });
    return node;
  };
  const choose = (/** @type {any} */ event) => {
    const path = event.target.closest("[data-path]")?.dataset.path;
    clicked.current = path ?? "";
    if (path !== undefined) onChoose?.(path);
  };
  const showCurrent = () => {
    const place = drawn.places.findLast(({ path, kind }) => kind !== "subflow" && CURRENT.has(walk?.states.get(path)?.status ?? ""));
    const box = place && made.boxes.get(place.path);
    if (box) moves.current?.center(box);
  };
  const walkedLinks = useMemo(() => (walk ? taken(drawn.links, walk) : []), [drawn, walk]);
  const lines = drawn.links.map((link, index) => {
    const tone = walkedLinks[index] ? "taken" : "";
    return kept(`edge ${index}`, tone, () => html`<${Edge} key=${index} line=${made.lines[index]} action=${link.action} tone=${tone} />`);
  });
  const boxes = drawn.places.map((place) => {
    const state = walk?.states.get(place.path);
    const shown = JSON.stringify([state, place.path === chosen]);
    return kept(place.path, shown, () => html`<${Box} key=${place.path} place=${place} box=${made.boxes.get(place.path)} state=${state} chosen=${place.path === chosen} />`);
  });
  return html`<div class="picture">
    <div ref=${frame} class="frame" tabindex="0" role="group" onClick=${choose}
      style=${{ aspectRatio: `${made.width} / ${made.height}`, maxHeight: `min(85vh, ${made.height * MOST_FITTED}px)` }}
      aria-label="Graph of the flow: arrow keys move it, plus and minus scale it, 0 shows the whole. The table below has the same content.">
      <svg aria-hidden="true">
        <defs>
          ${["", "taken"].map(
            (tone) => html`<marker key=${tone} id=${`arrow${tone}`} class=${`arrow ${tone}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" /></marker>`,
          )}
        </defs>
        <g ref=${group}>${boxes.filter((_, index) => drawn.places[index].kind === "subflow")}${lines}${boxes.filter((_, index) => drawn.places[index].kind !== "subflow")}</g>
      </svg>
    </div>
    <div class="picture-tools">
      <button onClick=${() => moves.current?.zoom(1.25)} aria-label="Larger" title="Larger (+)"><${Icon} name="plus" /></button>
      <button onClick=${() => moves.current?.zoom(0.8)} aria-label="Smaller" title="Smaller (-)"><${Icon} name="minus" /></button>
      <button onClick=${() => moves.current?.fit()} aria-label="Show the whole graph" title="Show the whole graph (0)"><${Icon} name="whole" /></button>
      ${walk && html`<button onClick=${showCurrent} aria-label="Show the current node" title="Show the current node"><${Icon} name="target" /></button>`}
    </div>
  </div>`;
}

/** @param {{ line: import("./layout.js").Line, action: string, tone: string }} props */
function Edge({ line, action, tone }) {
  const text = label(action);
  return html`<g class=${`edge ${tone} ${action ? "" : "implied"}`}>
    <path d=${curve(line.points)} marker-end=${`url(#arrow${tone})`} />
    ${text && html`<text x=${line.x} y=${line.y} dy="0.32em">${visible(text)}<title>${visible(action)}</title></text>`}
  </g>`;
}

/** @param {{ place: Place, box: import("./layout.js").Box, state?: NodeState, chosen: boolean }} props */
function Box({ place, box, state, chosen }) {
  const { path, key, kind, caption } = place;
  const { x, y, width, height } = box;
  if (kind === "begin" || kind === "end") return html`<circle class=${`point ${kind}`} cx=${x} cy=${y} r=${width / 2} />`;
  const tone = `${state?.status ?? ""} ${chosen ? "chosen" : ""}`;
  const name = html`<title>${visible(`${path}\n${kind} ${caption}`)}</title>`;
  const corner = `translate(${x - width / 2} ${y - height / 2})`;
  if (kind === "subflow") {
    return html`<g class=${`box subflow ${tone}`} data-path=${path} transform=${corner}>
      ${name}<rect width=${width} height=${height} rx="10" /><text class="key" x="10" y="17">${visible(short(key))}</text>
    </g>`;
  }
  const sign = SIGNS[/** @type {keyof typeof SIGNS} */ (kind)] ?? "box";
  return html`<g class=${`box ${tone}`} data-path=${path} transform=${corner}>
    ${name}
    <rect width=${width} height=${height} rx="8" />
    <${DrawnIcon} name=${sign} x=${16} y=${23} />
    <text class="key" x="32" y="19">${visible(short(key))}</text>
    <text class="kind" x="32" y="36">${visible(short(caption ? `${kind} ${caption}` : kind))}</text>
    ${state && state.visits > 1 && html`<text class="count" x=${width - 6} y="-4">×${state.visits}</text>`}
    ${state && state.done + state.failed > 0 && html`<text class="count" x=${width - 6} y=${height + 13}>${state.done} ok${state.failed ? `, ${state.failed} failed` : ""}</text>`}
  </g>`;
}

/** @param {{ x: number, y: number }[]} points */
function curve(points) {
  const [first, ...others] = points;
  let path = `M${first.x} ${first.y}`;
  others.forEach((point, index) => {
    const next = others[index + 1];
    if (!next) path += `L${point.x} ${point.y}`;
    else path += `Q${point.x} ${point.y} ${(point.x + next.x) / 2} ${(point.y + next.y) / 2}`;
  });
  return path;
}

/** @param {{ drawn: import("./outline.js").Outline, walk?: Walked, chosen: string, onChoose?: (path: string) => void }} props */
function Words({ drawn, walk, chosen, onChoose }) {
  const open = useSignal(false);
  const places = drawn.places.filter(({ kind }) => kind !== "begin" && kind !== "end");
  return html`<details open=${open.value} onToggle=${(/** @type {any} */ event) => (open.value = event.currentTarget.open)}>
    <summary>The ${places.length} ${places.length === 1 ? "node" : "nodes"} as a table</summary>
    ${open.value &&
    html`<div class="scrolling" tabindex="0" role="region" aria-label="Nodes of the flow"><table>
      <thead><tr><th>Node</th><th>Kind</th>${walk && html`<th>State</th><th>Visits</th>`}<th>Leads to</th></tr></thead>
      <tbody>${places.map((place) => {
        const state = walk?.states.get(place.path);
        return html`<tr key=${place.path} class=${place.path === chosen ? "chosen" : ""}>
          <td>${onChoose
            ? html`<button class="quiet" aria-pressed=${place.path === chosen} onClick=${() => onChoose(place.path)}><${Text} value=${place.path} /></button>`
            : html`<${Text} value=${place.path} />`}</td>
          <td>${place.kind} <span class="faint"><${Text} value=${place.caption} /></span></td>
          ${walk && html`<td>${state ? html`<${Status} status=${state.status} />` : html`<span class="faint">not yet</span>`}</td><td class="number">${state?.visits ?? 0}</td>`}
          <td><${Text} value=${leads(drawn, place.path).join(", ")} /></td>
        </tr>`;
      })}</tbody>
    </table></div>`}
  </details>`;
}
