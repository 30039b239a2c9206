/** A value in one line. Pure. */

import { ExactNumber } from "../../greenroom.js";

/** The beginning of a value in one line. It reads no more of the value than it shows. @param {unknown} value @param {number} most letters */
export function brief(value, most) {
  let text = "";
  /** @param {any} one */
  const write = (one) => {
    if (text.length > most) return;
    if (typeof one === "string") text += JSON.stringify(one.slice(0, most + 1));
    else if (typeof one !== "object" || one === null) text += JSON.stringify(one);
    else if (one instanceof ExactNumber) text += one.source;
    else {
      const isList = Array.isArray(one);
      text += isList ? "[" : "{";
      let first = true;
      for (const key in one) {
        if (text.length > most) return;
        if (!first) text += ", ";
        first = false;
        if (!isList) text += `${key.slice(0, most)}: `;
        write(one[key]);
      }
      text += isList ? "]" : "}";
    }
  };
  write(value);
  return text.length > most ? `${text.slice(0, most)}…` : text;
}
