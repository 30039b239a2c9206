/**
 * A list of which only the visible rows exist, so 100,000 rows cost as much as 40. All rows have the same height.
 *
 * The focus stays on the list; the active row is announced to screen readers. While a person reads further down, rows
 * that are added above do not move what they read. A person who comes back finds the same rows, as soon as the list has
 * them, unless the person scrolls before that.
 */

import { html, useEffect, useLayoutEffect, useRef, useState } from "../../vendor/ui.js";
import { found, keep } from "../state/address.js";

const SPARE = 8;

/**
 * @param {object} props
 * @param {number} props.count
 * @param {number} props.height the height of a row in pixels, which can change with the width of the window
 * @param {(index: number) => string} props.keyOf
 * @param {(key: string) => number} props.indexOf the current index of a key, or -1
 * @param {(index: number) => any} props.row
 * @param {number} props.active the index of the active row, or -1
 * @param {string} props.label for screen readers
 * @param {any} [props.head]
 * @param {object} [props.handlers] of the element that has the rows
 * @param {number} [props.end] the row after the last one that is not missing; `count` unless given
 * @param {(scrolled: boolean) => void} [props.onEnd] called when the rows up to `end` are visible; whether by scrolling
 */
export function VirtualList({ count, height, keyOf, indexOf, row, active, label, head, handlers, end = count, onEnd }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const top = useRef(/** @type {{ key: string, offset: number } | null} */ (found()));
  const seeks = useRef(top.current !== null); // whether the list has not had the row to which the person comes back
  const [view, setView] = useState({ from: 0, size: 30 });

  const look = (scrolled = false) => {
    const element = place.current;
    if (!element) return; // the list is gone before its observer
    const from = Math.floor(element.scrollTop / height);
    const size = Math.ceil(element.clientHeight / height);
    if (scrolled || (top.current !== null && indexOf(top.current.key) >= 0)) seeks.current = false;
    if (!seeks.current) top.current = from > 0 && from < count ? { key: keyOf(from), offset: element.scrollTop - from * height } : null;
    if (from !== view.from || size !== view.size) setView({ from, size });
    if (from + size >= end) onEnd?.(scrolled);
  };

  useLayoutEffect(() => {
    const known = top.current;
    if (known === null || !place.current) return;
    const index = indexOf(known.key);
    const wanted = index * height + known.offset;
    if (index >= 0 && Math.abs(place.current.scrollTop - wanted) > 1) place.current.scrollTop = wanted;
  });

  const latest = useRef(look);
  latest.current = look;
  useEffect(() => latest.current(), [count, end, keyOf, height]);
  useEffect(() => {
    const watch = new ResizeObserver(() => latest.current());
    watch.observe(/** @type {HTMLElement} */ (place.current));
    const ignore = keep(() => top.current);
    return () => {
      watch.disconnect();
      ignore();
    };
  }, []);

  useLayoutEffect(() => {
    const element = place.current;
    if (!element || active < 0) return;
    const above = active * height;
    const below = above + 2 * height - element.clientHeight; // the head covers at most a row
    if (element.scrollTop > above) element.scrollTop = above;
    else if (element.scrollTop < below) element.scrollTop = below;
  }, [active]);

  const first = Math.max(0, Math.min(view.from, count - view.size) - SPARE);
  const last = Math.min(count, first + view.size + 2 * SPARE);
  const rows = [];
  for (let index = first; index < last; index++) {
    rows.push(html`<div
      key=${keyOf(index)}
      id=${`row-${keyOf(index)}`}
      class="row ${index === active ? "active" : ""}"
      role="row"
      aria-rowindex=${index + 2}
      style=${{ top: `${index * height}px`, height: `${height}px` }}
    >
      ${row(index)}
    </div>`);
  }
  const described = active >= 0 && active < count ? `row-${keyOf(active)}` : undefined;
  return html`<div
    ref=${place}
    class="virtual"
    role="grid"
    tabindex="0"
    aria-label=${label}
    aria-rowcount=${count + 1}
    aria-activedescendant=${described}
    onScroll=${() => look(true)}
    ...${handlers}
  >
    ${head}
    <div class="virtual-rows" role="rowgroup" style=${{ height: `${count * height}px` }}>${rows}</div>
  </div>`;
}
