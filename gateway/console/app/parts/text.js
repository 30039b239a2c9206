/**
 * Text of users: job names, parameters, errors, logs. It is only ever text, isolated from the text around it, so that
 * right-to-left letters do not reorder the page; control characters and invisible marks are shown as symbols.
 */

import { html } from "../../vendor/ui.js";

const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** The text without characters that are invisible or change the text around them. @param {unknown} value */
export function visible(value) {
  return String(value).replace(ODD, (letter) => {
    const code = letter.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

/** @param {{ value: unknown, mono?: boolean, lines?: boolean }} props */
export function Text({ value, mono = false, lines = false }) {
  return html`<bdi class=${`text ${mono ? "mono" : ""} ${lines ? "lines" : ""}`}>${visible(value)}</bdi>`;
}
