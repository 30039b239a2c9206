/** Signs as drawings: the fonts of a system can lack the characters for them. */

import { html } from "../../vendor/ui.js";

/** Lines in a square of 16 units. */
const LINES = {
  approval: "M2.5 2.5h11v11h-11zM5 8l2 2 4-4",
  bars: "M4 3v10M8 3v10M12 3v10",
  box: "M2.5 4.5h11v7h-11z",
  chip: "M3 3h10v10H3zM6 6h4v4H6z",
  choice: "M8 2l6 6-6 6-6-6z",
  circle: "M8 3a5 5 0 1 1 0 10A5 5 0 0 1 8 3z",
  clock: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2zM8 5v3l2 2",
  cross: "M4 4l8 8M12 4l-8 8",
  dashes: "M8 3a5 5 0 0 1 5 5M8 13a5 5 0 0 1-5-5",
  filter: "M2 3h12L9.5 8.5V13l-3-1.5v-3z",
  flow: "M2 4h4M10 4h4M6 2v4h4V2zM8 6v4M6 10v4h4v-4z",
  function: "M10 3c-2-1-3 0-3 2v6c0 2-1 3-3 2M5 7h5",
  gear: "M8 5.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5zM8 2v2M8 12v2M2 8h2M12 8h2M4 4l1 1M11 11l1 1M12 4l-1 1M5 11l-1 1",
  grid: "M2.5 3h11v10h-11zM8 3v10M2.5 8h11",
  half: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2zM8 2v12M10 3v10M12 4.5v7",
  handle: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2zM8 6a2 2 0 1 1 0 4 2 2 0 0 1 0-4z",
  lines: "M2 4h12M2 8h12M2 12h12",
  loop: "M13 8a5 5 0 1 1-2-4M13 2v3h-3",
  mail: "M2 4h12v8.5H2zM2 4l6 5 6-5",
  minus: "M4 8h8",
  moon: "M12.5 10A5.5 5.5 0 0 1 6 3.5 5 5 0 1 0 12.5 10z",
  nested: "M2 2h8v8H2zM6 10v4h8V6h-4",
  none: "M8 3a5 5 0 1 1 0 10A5 5 0 0 1 8 3zM4.5 11.5l7-7",
  out: "M4 12l8-8M6 4h6v6",
  pause: "M5.5 4v8M10.5 4v8",
  play: "M5 3l8 5-8 5z",
  plus: "M4 8h8M8 4v8",
  question: "M5 6c0-4 6-4 6-.5C11 8 8 7.5 8 10M8 12.5v.5",
  stop: "M5 2.5h6L13.5 5v6L11 13.5H5L2.5 11V5zM5 8h6",
  sun: "M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  target: "M8 3a5 5 0 1 1 0 10A5 5 0 0 1 8 3zM8 1v4M8 11v4M1 8h4M11 8h4",
  tick: "M3 8.5l3.5 3.5L13 4.5",
  tools: "M3 13l6-6M9 7a3 3 0 0 0 4-4l-2 2-1-1 2-2a3 3 0 0 0-4 4",
  wave: "M1 8h3l2-5 4 10 2-5h3",
  whole: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3",
};

/** @typedef {keyof typeof LINES} Sign */

/** A sign of the height of the text around it. Screen readers skip it. @param {{ name: Sign }} props */
export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${LINES[name]} /></svg>`;

/** A sign in a drawing, with its middle at this place. @param {{ name: Sign, x: number, y: number }} props */
export const DrawnIcon = ({ name, x, y }) => html`<path class="icon" transform=${`translate(${x - 8} ${y - 8})`} d=${LINES[name]} />`;
