/**
 * The views, in the order of the navigation. To add one: write a module with a component that takes `names` and `query`
 * of the address, add it here, and add its `view` to `VIEWS` in `gateway/http/console.py`.
 */

import { later } from "../parts/later.js";
import { live } from "../state/session.js";
import { Events } from "./events.js";
import { Executors } from "./executors.js";
import { Handle } from "./handles/handle.js";
import { Handles } from "./handles/handles.js";
import { Inbox } from "./interrupts.js";
import { Overview } from "./overview.js";
import { Run } from "./run/run.js";
import { Runs } from "./runs/runs.js";
import { Schedule } from "./schedules/schedule.js";
import { Schedules } from "./schedules/schedules.js";
import { Settings } from "./settings/settings.js";
import { Webhooks } from "./webhooks.js";
import { Workers } from "./workers.js";

/**
 * @typedef {object} View
 * @property {string} view the first part of the address
 * @property {string} title
 * @property {import("../parts/icon.js").Sign} sign
 * @property {any} component
 * @property {any} [one] the component for one of them, by the second part of the address
 * @property {() => number} [open] how many of them wait for a person
 * @property {"operator"} [least] the role that the view requires, if not every role may see it
 * @property {boolean} [whole] whether only tokens without limits may see it
 */

const Flows = later((suffix) => import(`./flows/flows.js${suffix}`), "Flows");
const Flow = later((suffix) => import(`./flows/flow.js${suffix}`), "Flow");

/** @type {View[]} */
export const VIEWS = [
  { view: "", title: "Overview", sign: "grid", component: Overview },
  { view: "runs", title: "Runs", sign: "lines", component: Runs, one: Run },
  { view: "handles", title: "Handles", sign: "handle", component: Handles, one: Handle },
  { view: "flows", title: "Flows", sign: "flow", component: Flows, one: Flow },
  { view: "interrupts", title: "Interrupts", sign: "question", component: Inbox, open: () => live.interrupts.value.length },
  { view: "schedules", title: "Schedules", sign: "clock", component: Schedules, one: Schedule },
  { view: "executors", title: "Executors", sign: "chip", component: Executors, whole: true },
  { view: "workers", title: "Workers", sign: "tools", component: Workers, whole: true },
  { view: "webhooks", title: "Webhooks", sign: "out", component: Webhooks, least: "operator", whole: true },
  { view: "events", title: "Events", sign: "wave", component: Events },
  { view: "settings", title: "Settings", sign: "gear", component: Settings },
];
