/** The title of the tab: how many people are waited for, what the page shows, then the view, then the program. */

import { signal, useEffect } from "../../vendor/ui.js";
import { visible } from "../parts/text.js";

const subject = signal("");

/** What a view shows, if that is more than the names in its address: the title of the tab begins with it. @param {string} text */
export function useSubject(text) {
  useEffect(() => void (subject.value = text), [text]);
  useEffect(() => () => void (subject.value = ""), []);
}

/**
 * Keep the title of the tab.
 * @param {string | undefined} view
 * @param {string[]} names the other parts of the address
 * @param {number} open how many interrupts the person can answer: also seen while another tab is in front
 */
export function useTitle(view, names, open) {
  const said = [visible(subject.value || names.join(" ")), view, "Greenroom"].filter(Boolean).join(" · ");
  const title = open > 0 ? `(${open}) ${said}` : said;
  useEffect(() => void (document.title = title), [title]);
}
