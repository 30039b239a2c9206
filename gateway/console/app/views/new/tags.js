/** Tags as a person writes them: a line `name=value` for each, or a JSON object. Pure. */

/** Raises an error that names the line that is none. @param {string} text @returns {Record<string, string>} */
export function tagsIn(text) {
  if (/^\s*\{/.test(text)) {
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Error(`the tags are not valid JSON: ${/** @type {Error} */ (error).message}`);
    }
  }
  const lines = text.split("\n").map((line) => line.replace(/\r$/, "")).filter((line) => line.trim() !== "");
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf("=");
      if (at < 0) throw new Error(`a tag is a line name=value (got ${JSON.stringify(line)})`);
      return [line.slice(0, at), line.slice(at + 1)];
    }),
  );
}

/** The text for tags, which reads as the same ones. @param {Record<string, string>} tags */
export function textOfTags(tags) {
  const entries = Object.entries(tags);
  const fitsLines = entries.every(([name, value]) => !/[\r\n]/.test(name + value)) && !/^\s*\{/.test(entries[0]?.[0] ?? "");
  return fitsLines ? entries.map(([name, value]) => `${name}=${value}`).join("\n") : JSON.stringify(tags, null, 2);
}
