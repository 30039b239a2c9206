/** A small chart of the last two minutes: an area in SVG, with its latest value as text. */

import { html } from "../../vendor/ui.js";

const WIDTH = 240;
const HEIGHT = 48;

/**
 * @param {object} props
 * @param {string} props.label
 * @param {number[]} props.values oldest first; they end at the right, and what is missing at the left is unknown
 * @param {number} props.width how many values fill the chart
 * @param {number} [props.latest] the value that is written, if it is not that of the last second that is over
 * @param {(value: number) => string} props.format
 * @param {string} [props.tone]
 */
export function Chart({ label, values, width, latest = values.at(-2), format, tone = "" }) {
  const most = Math.max(...values, 0);
  const step = WIDTH / (width - 1);
  const left = WIDTH - (values.length - 1) * step;
  const points = values.map((value, index) => {
    const up = most > 0 ? (value / most) * (HEIGHT - 4) : 0;
    return `${(left + index * step).toFixed(1)},${(HEIGHT - 1 - up).toFixed(1)}`;
  });
  return html`<figure class="chart ${tone}">
    <figcaption><span>${label}</span> <strong class="number">${latest === undefined ? "–" : format(latest)}</strong> <small>peak ${format(most)}</small></figcaption>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true">
      <polygon class="area" points=${`${left},${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`} />
      <polyline class="line" points=${points.join(" ")} />
    </svg>
  </figure>`;
}
