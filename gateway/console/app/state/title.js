/** The title of the tab: what the page shows, then the view, then the program. */

import { signal, useEffect } from "../../vendor/ui.js";
import { visible } from "../parts/text.js";

const subject = signal("");

/** What a view shows, if that is more than the names in its address: the title of the tab begins with it. @param {string} text */
export function useSubject(text) {
  useEffect(() => void (subject.value = text), [text]);
  useEffect(() => () => void (subject.value = ""), []);
}

/** Keep the title of the tab. @param {string | undefined} view @param {string[]} names the other parts of the address */
export function useTitle(view, names) {
  const title = [visible(subject.value || names.join(" ")), view, "Greenroom"].filter(Boolean).join(" · ");
  useEffect(() => void (document.title = title), [title]);
}
