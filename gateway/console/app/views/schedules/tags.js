/** Tags as a person writes them in a form: one `name=value` per line. Pure. */

/** @param {Record<string, string>} tags */
export const written = (tags) => Object.entries(tags).map(([name, value]) => `${name}=${value}`).join("\n");

/**
 * The tags of a text; those that it was written from, if it was not changed. A line without `=` is an error.
 * @param {string} text
 * @param {Record<string, string>} before
 * @returns {Record<string, string>}
 */
export function tagsIn(text, before = {}) {
  const lines = text.replaceAll("\r\n", "\n");
  if (lines === written(before)) return before;
  return Object.fromEntries(
    lines.split("\n").filter((line) => line.trim() !== "").map((line) => {
      const at = line.indexOf("=");
      if (at <= 0) throw new Error(`a tag is written as name=value (got ${JSON.stringify(line)})`);
      return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    }),
  );
}
