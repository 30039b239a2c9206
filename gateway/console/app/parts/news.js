/** What came while a list did not move, because a person is at its rows. */

import { html } from "../../vendor/ui.js";

/** `what`: the name of one. @param {{ count: number, what: string, show: () => void }} props */
export function News({ count, what, show }) {
  if (count === 0) return null;
  return html`<button class="news" onClick=${show}>${counted(count, what)}</button>`;
}

/** Such as "3 new runs". @param {number} count @param {string} what */
export const counted = (count, what) => `${count.toLocaleString()} new ${what}${count === 1 ? "" : "s"}`;

/** Scroll the list to its top, and then show what is new: until the list has scrolled, it keeps the rows that it shows. @param {() => void} show */
export function atTop(show) {
  const list = document.querySelector(".virtual");
  if (list) list.scrollTop = 0;
  requestAnimationFrame(show);
}
