/**
 * Moves and scales a drawing inside its frame: by mouse, touch, wheel and keyboard. Only the attribute `transform` of
 * one group changes, so the size of the drawing does not matter.
 */

const LEAST = 0.01;
const LEAST_WHOLE = 0.5; // with a smaller scale, only a part is shown at first
const READABLE = 0.75;
/** To show a whole drawing, it is enlarged up to this. */
export const MOST_FITTED = 1.5;
const MOST = 4;
const STEP = 60;
const FACTOR = 1.25;
const CLICK = 4; // pixels that a pointer may move during a click

/** @typedef {{ width: number, height: number }} Size */

export class PanZoom {
  #x = 0;
  #y = 0;
  #scale = 1;
  #moved = 0;
  /** @type {Map<number, { x: number, y: number }>} */
  #pointers = new Map();
  #frame;
  #group;
  #drawing;
  #stop = new AbortController();

  /**
   * Shows the whole drawing, or, if it is too large to be read then, where it begins.
   * @param {HTMLElement} frame
   * @param {SVGGElement} group
   * @param {Size} drawing
   * @param {{ x: number, y: number }} begin
   */
  constructor(frame, group, drawing, begin) {
    this.#frame = frame;
    this.#group = group;
    this.#drawing = drawing;
    const { signal } = this.#stop;
    frame.addEventListener("pointerdown", (event) => this.#down(event), { signal });
    frame.addEventListener("pointermove", (event) => this.#move(event), { signal });
    for (const type of /** @type {const} */ (["pointerup", "pointercancel"])) {
      frame.addEventListener(type, (event) => this.#pointers.delete(event.pointerId), { signal });
    }
    frame.addEventListener("click", (event) => this.#moved > CLICK && event.stopPropagation(), { signal, capture: true });
    frame.addEventListener("wheel", (event) => this.#wheel(event), { signal, passive: false });
    frame.addEventListener("keydown", (event) => this.#key(event), { signal });
    this.fit();
    if (this.#scale >= LEAST_WHOLE) return;
    this.#scale = READABLE;
    this.#x = frame.clientWidth / 2 - begin.x * READABLE;
    this.#y = 0;
    this.#show();
  }

  close() {
    this.#stop.abort();
  }

  /** Show the whole drawing as large as the frame permits. */
  fit() {
    const { clientWidth, clientHeight } = this.#frame;
    const { width, height } = this.#drawing;
    this.#scale = Math.min(MOST_FITTED, Math.max(LEAST, Math.min(clientWidth / width, clientHeight / height) || 1));
    this.#x = (clientWidth - width * this.#scale) / 2;
    this.#y = Math.max(0, (clientHeight - height * this.#scale) / 2);
    this.#show();
  }

  /** Move a place of the drawing to the middle of the frame. @param {{ x: number, y: number }} place */
  center({ x, y }) {
    this.#scale = Math.max(this.#scale, 0.8);
    this.#x = this.#frame.clientWidth / 2 - x * this.#scale;
    this.#y = this.#frame.clientHeight / 2 - y * this.#scale;
    this.#show();
  }

  /** @param {number} factor @param {number} [x] the place in the frame that stays @param {number} [y] */
  zoom(factor, x = this.#frame.clientWidth / 2, y = this.#frame.clientHeight / 2) {
    const scale = Math.min(MOST, Math.max(LEAST, this.#scale * factor));
    this.#x = x - ((x - this.#x) * scale) / this.#scale;
    this.#y = y - ((y - this.#y) * scale) / this.#scale;
    this.#scale = scale;
    this.#show();
  }

  /** @param {number} x @param {number} y */
  #pan(x, y) {
    this.#x += x;
    this.#y += y;
    this.#show();
  }

  #show() {
    this.#group.setAttribute("transform", `translate(${this.#x} ${this.#y}) scale(${this.#scale})`);
  }

  /** @param {PointerEvent} event */
  #down(event) {
    if (event.button !== 0) return;
    if (this.#pointers.size === 0) this.#moved = 0;
    this.#pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  }

  /** @param {PointerEvent} event */
  #move(event) {
    const before = this.#pointers.get(event.pointerId);
    if (!before || this.#pointers.size > 2) return;
    if (event.pointerType === "mouse" && event.buttons === 0) return void this.#pointers.delete(event.pointerId);
    const here = { x: event.clientX, y: event.clientY };
    const other = [...this.#pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.#pointers.set(event.pointerId, here);
    this.#moved += Math.hypot(here.x - before.x, here.y - before.y);
    if (this.#moved > CLICK && !this.#frame.hasPointerCapture(event.pointerId)) this.#frame.setPointerCapture(event.pointerId);
    const share = other ? 0.5 : 1; // of two fingers, the middle moves by half
    this.#pan((here.x - before.x) * share, (here.y - before.y) * share);
    if (!other) return;
    const { left, top } = this.#frame.getBoundingClientRect();
    const factor = distance(here, other) / (distance(before, other) || 1);
    this.zoom(factor || 1, (here.x + other.x) / 2 - left, (here.y + other.y) / 2 - top);
  }

  /** The wheel scrolls the page, unless the drawing has the focus or Ctrl is held. @param {WheelEvent} event */
  #wheel(event) {
    if (!event.ctrlKey && !event.metaKey && !this.#frame.contains(document.activeElement)) return;
    event.preventDefault();
    const { left, top } = this.#frame.getBoundingClientRect();
    this.zoom(Math.exp(-event.deltaY / 400), event.clientX - left, event.clientY - top);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowLeft: () => this.#pan(STEP, 0),
      ArrowRight: () => this.#pan(-STEP, 0),
      ArrowUp: () => this.#pan(0, STEP),
      ArrowDown: () => this.#pan(0, -STEP),
      "+": () => this.zoom(FACTOR),
      "=": () => this.zoom(FACTOR),
      "-": () => this.zoom(1 / FACTOR),
      0: () => this.fit(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }
}

/** @param {{ x: number, y: number }} one @param {{ x: number, y: number }} other */
const distance = (one, other) => Math.hypot(one.x - other.x, one.y - other.y);
