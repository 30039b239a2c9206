/**
 * Text of users: job names, parameters, errors, logs. It is only ever text, isolated from the text around it, so that
 * right-to-left letters do not reorder the page; control characters and invisible marks are shown as symbols.
 */

import { html } from "../../vendor/ui.js";

/** Without U+200C and U+200D, which some scripts and signs need. */
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff]/g;

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

/**
 * A text in a frame that scrolls if it is long; then the keyboard can reach the frame.
 * @param {{ value: unknown, className?: string, mono?: boolean }} props
 */
export function LongText({ value, className = "", mono = false }) {
  const text = String(value);
  const isLong = text.length > 100 || text.split("\n").length > 3; // five lines on a narrow page
  return html`<div class=${`long ${className}`} tabindex=${isLong ? 0 : undefined}><${Text} value=${text} mono=${mono} lines /></div>`;
}

/** What stands beside a field whose text has letters that cannot be seen in it. @param {{ value: unknown }} props */
export function InvisibleLetters({ value }) {
  const found = [...new Set(String(value ?? "").match(ODD) ?? [])];
  if (found.length === 0) return null;
  return html`<small class="error-text invisible">contains invisible characters: ${found.map(visible).join(" ")}</small>`;
}
