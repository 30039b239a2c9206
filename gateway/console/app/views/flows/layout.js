/**
 * Where the places and links of an outline are drawn. Each level is laid out by itself, because that takes far less time
 * than one layout of all. Loads dagre when it is first needed.
 */

/** @typedef {import("./outline.js").Outline} Outline */
/** @typedef {import("./outline.js").Place} Place */
/** @typedef {import("./outline.js").Link} Link */
/** @typedef {{ x: number, y: number, width: number, height: number }} Box the middle, and the size */
/** @typedef {{ points: { x: number, y: number }[], x?: number, y?: number }} Line its label is at `x`, `y` */
/** @typedef {{ width: number, height: number, boxes: Map<string, Box>, lines: Line[] }} Layout */

const LETTER = 7.3;
const LONGEST = 30;
const POINT = 14;
const HEAD = 16; // where the name of a subflow is
const MANY = 120; // a larger graph takes seconds if all of its edges avoid its nodes

/** The name of a place for dagre, which keeps places in objects that inherit `constructor` and `toString`. @param {string} path */
const named = (path) => `/${path}`;

/** @param {string} text */
export const short = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

/** @param {Outline} outline @returns {Promise<Layout>} */
export async function layout({ places, links }) {
  const dagre = await import("../../../vendor/graph.js");
  const parents = new Map(places.map(({ path, parent }) => [path, parent]));
  const inside = Map.groupBy(places, ({ parent }) => parent);
  const between = Map.groupBy(links, ({ from }) => parents.get(from));
  /** @type {Map<string, Box>} */
  const boxes = new Map();
  /** @type {Map<Link, Line>} */
  const lines = new Map();

  /** Lay out one level, and those in its subflows, from this corner. @param {string} parent @returns {{ width: number, height: number, move: (x: number, y: number) => void }} */
  const arrange = (parent) => {
    const own = inside.get(parent) ?? [];
    const edges = between.get(parent) ?? [];
    const inner = new Map(own.filter(({ kind }) => kind === "subflow").map(({ path }) => [path, arrange(path)]));
    const graph = new dagre.Graph({ multigraph: true });
    const isLarge = own.length > MANY;
    const ranker = isLarge ? "longest-path" : "network-simplex";
    graph.setGraph({ rankdir: "TB", nodesep: 28, ranksep: 40, edgesep: 14, marginx: 12, marginy: 12, ranker });
    for (const place of own) {
      const within = inner.get(place.path);
      graph.setNode(named(place.path), within ? { width: Math.max(90, within.width), height: within.height + HEAD } : size(place));
    }
    const routed = isLarge ? firstWays(own, edges) : new Set(edges);
    edges.forEach((link, index) => {
      const text = label(link.action);
      const options = { width: LETTER * text.length, height: text ? 14 : 0, labelpos: "c" };
      if (routed.has(link)) graph.setEdge(named(link.from), named(link.to), options, String(index));
    });
    dagre.layout(graph);
    const { width = 0, height = 0 } = graph.graph();
    const move = (/** @type {number} */ x, /** @type {number} */ y) => {
      for (const { path } of own) {
        const box = moved(graph.node(named(path)), x, y);
        boxes.set(path, box);
        const within = inner.get(path);
        within?.move(box.x - within.width / 2, box.y - box.height / 2 + HEAD);
      }
      edges.forEach((link, index) => {
        const { from, to } = link;
        if (!routed.has(link)) return lines.set(link, direct(/** @type {Box} */ (boxes.get(from)), /** @type {Box} */ (boxes.get(to))));
        const line = graph.edge(named(from), named(to), String(index));
        lines.set(link, { ...moved({ x: 0, y: 0, ...line }, x, y), points: line.points.map((point) => moved(point, x, y)) });
      });
    };
    return { width, height, move };
  };

  const { width, height, move } = arrange("");
  move(0, 0);
  return { width, height, boxes, lines: links.map((link) => /** @type {Line} */ (lines.get(link))) };
}

/** @template {{ x: number, y: number }} T @param {T} one @param {number} x @param {number} y @returns {T} */
const moved = (one, x, y) => ({ ...one, x: one.x + x, y: one.y + y });

/** The links by which a search from the beginning finds each place first. @param {Place[]} places @param {Link[]} links */
function firstWays(places, links) {
  /** @type {Map<string, Link[]>} */
  const following = new Map(places.map(({ path }) => [path, []]));
  for (const link of links) following.get(link.from)?.push(link);
  /** @type {Set<Link>} */
  const first = new Set();
  const found = new Set();
  for (const { path } of places) {
    if (found.has(path)) continue;
    found.add(path);
    const ahead = [path];
    for (const one of ahead) {
      for (const link of following.get(one) ?? []) {
        if (found.has(link.to)) continue;
        found.add(link.to);
        first.add(link);
        ahead.push(link.to);
      }
    }
  }
  return first;
}

/** A curve from one box to another. @param {Box} from @param {Box} to @returns {Line} */
function direct(from, to) {
  const down = to.y > from.y ? 1 : -1;
  const first = { x: from.x, y: from.y + (down * from.height) / 2 };
  const last = { x: to.x, y: to.y - (down * to.height) / 2 };
  const bend = Math.max(from.width, to.width) / 2 + 30 + Math.abs(last.y - first.y) / 20;
  const middle = { x: Math.max(first.x, last.x) + bend, y: (first.y + last.y) / 2 };
  return { points: [first, middle, last], x: middle.x - bend / 2, y: middle.y };
}

/** What stands at an edge. @param {string} action */
export const label = (action) => (action === "default" ? "" : short(action));

/** @param {Place} place */
function size({ key, kind, caption }) {
  if (kind === "begin" || kind === "end") return { width: POINT, height: POINT };
  const longest = Math.max(short(key).length, short(`${kind} ${caption}`).length);
  return { width: Math.max(90, 34 + LETTER * longest), height: 46 };
}
