/** Preact, its signals, and `html`, which makes its elements. */

export { h, render, Fragment } from "preact";
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from "@preact/signals";
import "@preact/signals"; // its hooks in `options` are set before ours
import htm from "htm";
import { h, options } from "preact";

/*
 * Preact makes new nodes each time that it renders, and links each of them to its parent. A node of an earlier time that
 * is still referred to must not lead to those of later times, or all of them stay in memory. Two references are usual: the
 * properties of an element have the first node of each component in it, and htm's cache has the first node of each
 * element without values. The way to later nodes: a component that need not render gives what is inside it to its next
 * node, and what is inside refers to that one as its parent.
 */

/** The latest node of each component. @type {WeakMap<object, { __k: unknown }>} */
const latest = new WeakMap();
const { diffed } = options;
options.diffed = (node) => {
  const component = node.__c; // in Preact's sources: `_component`, and below `_children`
  const earlier = component && latest.get(component);
  if (earlier && earlier !== node) earlier.__k = null;
  if (component) latest.set(component, node);
  diffed?.(node);
};

/** Preact's elements of a template, without the cache. */
export const html = htm.bind(function (type, props, ...children) {
  this[0] = 3; // tells htm not to keep this element
  return h(type, props, ...children);
});
