/** The parameters of a flow: those that its nodes read, and those that they require. Pure. */

/** @typedef {{ name: string, required: boolean, usual: unknown }} Parameter `usual`: the value of the definition */

const READ = /\$params(?:\.([\p{L}_][\p{L}\p{N}_]*)|\["((?:[^"\\]|\\.)*)"\])/gsu;
const REQUIRED = /** @type {Record<string, string>} */ ({ timer: "delay_ms", wait_event: "signal_key", approval: "approval_key" });

/** In the order in which the definition names them. @param {any} definition @returns {Parameter[]} */
export function parametersOf(definition) {
  /** @type {Map<string, Parameter>} */
  const found = new Map();
  const ahead = [definition];
  for (const graph of ahead) {
    for (const node of Object.values(/** @type {Record<string, any>} */ (graph.nodes ?? {}))) {
      const own = node.params ?? {};
      const { subflow, ...others } = node;
      for (const name of read(others)) add(found, name, Object.hasOwn(own, name) ? own[name] : undefined, !Object.hasOwn(own, name));
      const needed = node.kind === "parallel" && !node.parallel_services?.length && !node.parallel_execs?.length ? "services" : REQUIRED[node.kind];
      if (needed && [undefined, null, ""].includes(own[needed])) add(found, needed, undefined, true);
      if (subflow) ahead.push(subflow);
    }
  }
  return [...found.values()];
}

/** @param {Map<string, Parameter>} found @param {string} name @param {unknown} usual @param {boolean} required */
function add(found, name, usual, required) {
  const known = found.get(name);
  found.set(name, { name, required: required || (known?.required ?? false), usual: known?.usual ?? usual });
}

/** The names in the paths of a node; a backslash quotes the next character, as in protocol/flow/paths.py. @param {any} value @returns {string[]} */
function read(value) {
  if (typeof value === "string") return [...value.matchAll(READ)].map(([, plain, quoted]) => plain ?? quoted.replace(/\\(.)/gs, "$1"));
  if (typeof value !== "object" || value === null) return [];
  return Object.values(value).flatMap(read);
}
