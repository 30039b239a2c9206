/** Whether a click is the end of a drag, by which a person selects text. It is not meant for what is below it. */

const NEAR = 4; // pixels that a hand moves between the press and the release of a click

let [x, y] = [0, 0]; // where the pointer was pressed
document.addEventListener("pointerdown", (event) => void ([x, y] = [event.clientX, event.clientY]), true);

/** @param {MouseEvent} click */
export const isDrag = (click) => click.detail > 0 && Math.hypot(click.clientX - x, click.clientY - y) > NEAR;
