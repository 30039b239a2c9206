/** Where the places and links of an outline are drawn. Loads dagre when it is first needed. */

/** @typedef {import("./outline.js").Outline} Outline */
/** @typedef {import("./outline.js").Place} Place */
/** @typedef {import("./outline.js").Link} Link */
/** @typedef {{ x: number, y: number, width: number, height: number }} Box the middle, and the size */
/** @typedef {{ points: { x: number, y: number }[], x?: number, y?: number }} Line its label is at `x`, `y` */
/** @typedef {{ width: number, height: number, boxes: Map<string, Box>, lines: Line[] }} Layout */

const LETTER = 7.3;
const LONGEST = 30;
const POINT = 14;
const MANY = 120; // a larger graph takes seconds if all of its edges avoid its nodes

/** @param {string} text */
export const short = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

/** @param {Outline} outline @returns {Promise<Layout>} */
export async function layout({ places, links }) {
  const dagre = await import("../../../vendor/graph.js");
  const graph = new dagre.Graph({ multigraph: true, compound: places.some(({ parent }) => parent) });
  const isLarge = places.length > MANY;
  const ranker = isLarge ? "longest-path" : "network-simplex";
  graph.setGraph({ rankdir: "TB", nodesep: 28, ranksep: 40, edgesep: 14, marginx: 12, marginy: 12, ranker });
  for (const place of places) {
    graph.setNode(place.path, place.kind === "subflow" ? {} : size(place));
    if (place.parent) graph.setParent(place.path, place.parent);
  }
  const routed = isLarge ? firstWays(places, links) : new Set(links);
  links.forEach((link, index) => {
    const text = label(link.action);
    const options = { width: LETTER * text.length, height: text ? 14 : 0, labelpos: "c" };
    if (routed.has(link)) graph.setEdge(link.from, link.to, options, String(index));
  });
  dagre.layout(graph);
  const { width, height } = graph.graph();
  const boxes = new Map(places.map(({ path }) => [path, graph.node(path)]));
  return {
    width: width ?? 0,
    height: height ?? 0,
    boxes,
    lines: links.map((link, index) => {
      if (routed.has(link)) return graph.edge(link.from, link.to, String(index));
      return direct(/** @type {Box} */ (boxes.get(link.from)), /** @type {Box} */ (boxes.get(link.to)));
    }),
  };
}

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
