/**
 * The views, in the order of the navigation. To add one: write a module with a component that takes `names` and `query`
 * of the address, add it here, and add its `view` to `VIEWS` in `gateway/http/console.py`.
 */

import { later } from "../parts/later.js";
import { Overview } from "./overview.js";
import { Run } from "./run/run.js";
import { Runs } from "./runs/runs.js";

/**
 * @typedef {object} View
 * @property {string} view the first part of the address
 * @property {string} title
 * @property {string} sign a letter that stands for the view
 * @property {any} component
 * @property {any} [one] the component for one of them, by the second part of the address
 */

const Flows = later(() => import("./flows/flows.js"), "Flows");
const Flow = later(() => import("./flows/flow.js"), "Flow");

/** @type {View[]} */
export const VIEWS = [
  { view: "", title: "Overview", sign: "◫", component: Overview },
  { view: "runs", title: "Runs", sign: "≡", component: Runs, one: Run },
  { view: "flows", title: "Flows", sign: "⌥", component: Flows, one: Flow },
];
