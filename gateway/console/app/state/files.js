/**
 * Whether the files of this page are still those of the server. After an upgrade the server has others, and this page
 * cannot load its missing parts any more. Compared when a lost connection is back, and when a part cannot be loaded.
 */

import { signal } from "../../vendor/ui.js";
import { HOME } from "./address.js";

const OWN = hashIn(import.meta.url);

/** Whether the server has other files: the page works, but must be loaded again for its other parts. */
export const outdated = signal(false);

/** Compare with the page that the server has now. Without an answer, the last comparison remains. */
export async function compareFiles() {
  const page = await fetch(HOME, { cache: "no-cache" }).then((response) => response.text()).catch(() => "");
  const current = hashIn(page);
  if (current) outdated.value = current !== OWN;
}

/** The hash in the addresses of the console's files. @param {string} text */
function hashIn(text) {
  return /console\/([0-9a-f]+)\/app\//.exec(text)?.[1];
}
