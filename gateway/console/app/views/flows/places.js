/** Where in a YAML or JSON text the mistakes are that the server reports by their paths. Pure. */

/** @typedef {import("../../../vendor/editor.js").SyntaxNode} SyntaxNode */
/** @typedef {{ from: number, to: number }} Range */

const STEP = /^(?:\.?([\p{L}\p{N}_]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\])/u;
const POSITION = /at line (\d+)(?:, column (\d+))?/;
const VALUES = new Set(["BlockMapping", "FlowMapping", "BlockSequence", "FlowSequence"]);

/** The keys of the path with which a message begins: `nodes.pay.choice_cases[1]: …`. @param {string} message */
export function keysOf(message) {
  /** @type {(string | number)[]} */
  const keys = [];
  let rest = message;
  for (let found = STEP.exec(rest); found; found = STEP.exec(rest)) {
    const [whole, name, index, quoted] = found;
    keys.push(name ?? (index === undefined ? JSON.parse(quoted) : Number(index)));
    rest = rest.slice(whole.length);
    if (rest.startsWith(":")) return keys.length === 1 && name === "definition" ? [] : keys;
  }
  return keys;
}

/**
 * The line of the text that a message is about: that of its path, else of the last part of the path that is there.
 * @param {string} text
 * @param {SyntaxNode} top the syntax tree of the text
 * @param {string} message
 * @returns {Range}
 */
export function placeOf(text, top, message) {
  const keys = keysOf(message);
  const position = keys.length === 0 ? POSITION.exec(message) : null;
  if (position) return line(text, startOf(text, Number(position[1])) + Number(position[2] ?? 1) - 1);
  let node = valueIn([...children(top)].find(({ name }) => name === "Document") ?? null);
  let at = 0;
  for (const key of keys) {
    const pair = node && (typeof key === "number" ? item(node, key) : pairOf(text, node, key));
    if (!pair) break;
    at = pair.from;
    node = valueIn(pair);
  }
  return line(text, at);
}

/** The offset at which a line begins. @param {string} text @param {number} number from 1 */
function startOf(text, number) {
  let at = 0;
  for (let before = 1; before < number; before++) at = text.indexOf("\n", at) + 1 || text.length;
  return at;
}

/** From an offset to the end of its line. @param {string} text @param {number} from @returns {Range} */
function line(text, from) {
  const start = Math.min(from, text.length);
  const end = text.indexOf("\n", start);
  return { from: start, to: end < 0 ? text.length : end };
}

/** @param {SyntaxNode | null} node @returns {Generator<SyntaxNode>} */
function* children(node) {
  for (let child = node?.firstChild ?? null; child; child = child.nextSibling) yield child;
}

/** The object or list in a document, a pair or an item. @param {SyntaxNode | null} node */
const valueIn = (node) => [...children(node)].find(({ name }) => VALUES.has(name)) ?? null;

/** @param {SyntaxNode} list @param {number} index */
const item = (list, index) => [...children(list)].filter(({ name }) => name === "Item")[index];

/** @param {string} text @param {SyntaxNode} object @param {string} key */
function pairOf(text, object, key) {
  return [...children(object)].find((pair) => {
    const written = [...children(pair)].find(({ name }) => name === "Key");
    return written && plain(text.slice(written.from, written.to)) === key;
  });
}

/** @param {string} written a key, perhaps in quotes */
function plain(written) {
  if (written.startsWith("'")) return written.slice(1, -1).replaceAll("''", "'");
  if (!written.startsWith('"')) return written;
  try {
    return String(JSON.parse(written));
  } catch {
    return written.slice(1, -1);
  }
}
