/** A small chart of the last two minutes: an area in SVG, with its latest value as text. */

import { html } from "../../vendor/ui.js";

const WIDTH = 240;
const HEIGHT = 48;

/**
 * @param {object} props
 * @param {string} props.label
 * @param {number[]} props.values oldest first
 * @param {(value: number) => string} props.format
 * @param {string} [props.tone]
 */
export function Chart({ label, values, format, tone = "" }) {
  const most = Math.max(...values, 0);
  const step = WIDTH / (values.length - 1);
  const points = values.map((value, index) => {
    const up = most > 0 ? (value / most) * (HEIGHT - 4) : 0;
    return `${(index * step).toFixed(1)},${(HEIGHT - 1 - up).toFixed(1)}`;
  });
  const latest = format(values.at(-2) ?? 0); // the last second is not over
  return html`<figure class="chart ${tone}">
    <figcaption><span>${label}</span> <strong class="number">${latest}</strong> <small>most ${format(most)}</small></figcaption>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true">
      <polygon class="area" points=${`0,${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`} />
      <polyline class="line" points=${points.join(" ")} />
    </svg>
  </figure>`;
}
