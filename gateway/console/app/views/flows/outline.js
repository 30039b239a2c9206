/**
 * What is drawn of a flow: its nodes and edges, with the nodes of subflows inside a box. Pure.
 *
 * Each level begins at a point and ends at another one.
 */

/**
 * @typedef {object} Place
 * @property {string} path the node, as in the events of a run: `ship/pack` is a node of the subflow `ship`
 * @property {string} key
 * @property {string} kind of the node; `begin`, `end` for a point
 * @property {string} caption what the node calls
 * @property {string} parent the path of the subflow around it; empty at the top
 * @property {any} node its definition; null for a point
 */
/**
 * @typedef {object} Link
 * @property {string} from the path of a place
 * @property {string} to
 * @property {string} target the node to which it leads; empty for the end
 * @property {string} node the node whose action takes the edge; empty for the first edge of a level
 * @property {string} action empty where the flow ends because the node has no edge
 * @property {string[]} failures the ends of the node, besides `ok`, after which its actions take the edge
 */
/** @typedef {{ places: Place[], links: Link[] }} Outline */

export const DEFAULT_ACTION = "default";
const ERROR_ACTION = "error";
/** The path of the point at which the flow begins. */
export const BEGIN = "\u0000begin";

/** @param {any} definition @returns {Outline} */
export function outline(definition) {
  /** @type {Outline} */
  const found = { places: [], links: [] };
  level(found, definition, "", "fail");
  return found;
}

/** @param {Outline} found @param {any} graph @param {string} parent @param {string} outer the rule for errors around it */
function level({ places, links }, graph, parent, outer) {
  const rule = graph?.unhandled_errors || outer;
  const prefix = parent ? `${parent}/` : "";
  const nodes = Object.entries(graph?.nodes ?? {});
  const edges = /** @type {any[]} */ (graph?.edges ?? []);
  const begin = `${prefix}\u0000begin`;
  const end = `${prefix}\u0000end`;
  const isSubflow = (/** @type {string} */ key) => graph.nodes[key]?.kind === "subflow";
  places.push({ path: begin, key: "", kind: "begin", caption: "", parent, node: null });
  for (const [key, node] of nodes) {
    places.push({ path: prefix + key, key, kind: node.kind, caption: caption(node), parent, node });
    if (isSubflow(key)) level({ places, links }, node.subflow, prefix + key, rule);
  }
  places.push({ path: end, key: "", kind: "end", caption: "", parent, node: null });
  links.push({ from: begin, to: prefix + graph.start, target: prefix + graph.start, node: "", action: "", failures: [] });
  const sources = new Set();
  for (const { from, to, action } of edges) {
    sources.add(from);
    const target = to ? prefix + to : "";
    links.push({ from: prefix + from, to: target || end, target, node: prefix + from, ...taking(graph.nodes[from], rule, action || DEFAULT_ACTION) });
  }
  for (const [key] of nodes) {
    if (!sources.has(key)) links.push({ from: prefix + key, to: end, target: "", node: prefix + key, ...taking(graph.nodes[key], rule, "") });
  }
}

/** When an edge of a node is taken. @param {any} node @param {string} rule @param {string} action */
function taking(node, rule, action) {
  const continues = rule === "continue" || Boolean(node.on_error) || action === ERROR_ACTION;
  return { action, failures: continues ? ["error", "timeout"] : node.on_timeout ? ["timeout"] : [] };
}

/** What a node calls. @param {any} node */
function caption(node) {
  if (node.func || node.service) return String(node.func || node.service);
  if (node.flow) return node.version ? `${node.flow} ${node.version}` : String(node.flow);
  if (node.parallel_services?.length) return node.parallel_services.join(", ");
  if (node.parallel_execs?.length) return node.parallel_execs.map((/** @type {any} */ one) => one.service ?? one.func ?? "").join(", ");
  if (node.script) return String(Array.isArray(node.script) ? node.script[0] : node.script.cmd);
  return "";
}

/** Where a node leads, in words: `late → pay`. @param {Outline} outline @param {string} path */
export function leads({ places, links }, path) {
  const keys = new Map(places.map((place) => [place.path, place.key]));
  return links
    .filter((link) => link.node === path)
    .map(({ target, action }) => `${action} → ${target ? keys.get(target) : "the end"}`.trim());
}
