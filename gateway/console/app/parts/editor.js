/**
 * Text editors for YAML: one, or two that show their differences. They are loaded when they are first shown.
 *
 * An editor lives in a shadow tree, because there its library can use style sheets that the page's
 * Content-Security-Policy permits. `Tab` leaves it.
 */

import { html, useEffect, useRef } from "../../vendor/ui.js";
import { compareFiles } from "../state/files.js";

/** @typedef {import("../../vendor/editor.js").Diagnostic} Diagnostic */
/** @typedef {import("../../vendor/editor.js").EditorView} EditorView */
/** @typedef {typeof import("../../vendor/editor.js")} Library */

/** The colors of the library, and ours, which are readable on dark and light pages. */
const COLORS = /** @type {Record<string, string>} */ ({
  "#00c": "var(--blue)",
  "#00f": "var(--blue)",
  "#164": "var(--violet)",
  "#219": "var(--violet)",
  "#221199": "var(--violet)",
  "#a11": "var(--green)",
  "#940": "var(--faint)",
  "#e40": "var(--amber)",
});

const REMOVED = "color-mix(in srgb, var(--red) 16%, transparent)";
const ADDED = "color-mix(in srgb, var(--green) 18%, transparent)";

/** @param {Library} library @param {string} label */
function appearance({ EditorView, HighlightStyle, defaultHighlightStyle, syntaxHighlighting, yaml, lineNumbers, bracketMatching }, label) {
  const specs = defaultHighlightStyle.specs.map((spec) => (spec.color ? { ...spec, color: COLORS[spec.color] ?? "var(--text)" } : spec));
  return [
    EditorView.theme({
      "&": { color: "var(--text)", backgroundColor: "var(--card)", fontSize: "13px" },
      "&.cm-focused": { outline: "2px solid var(--accent)" },
      ".cm-content": { caretColor: "var(--text)", fontFamily: "var(--mono)" },
      ".cm-scroller": { maxHeight: "36rem", overflow: "auto" },
      ".cm-gutters": { backgroundColor: "var(--sunk)", color: "var(--faint)", border: "none" },
      ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--text)", border: "1px solid var(--line)" },
      // The library's own marks are images in data: addresses, which the policy forbids.
      ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--red)" },
      ".cm-lintRange-warning": { backgroundImage: "none", textDecoration: "underline wavy var(--amber)" },
      ".cm-lint-marker-error, .cm-lint-marker-warning": { content: "normal", textAlign: "center", lineHeight: "1" },
      ".cm-lint-marker-error::before": { content: '"×"', color: "var(--red)" },
      ".cm-lint-marker-warning::before": { content: '"!"', color: "var(--amber)" },
      "&.cm-merge-a .cm-changedLine": { backgroundColor: `${REMOVED} !important` },
      "&.cm-merge-b .cm-changedLine": { backgroundColor: `${ADDED} !important` },
      "& .cm-changeGutter": { width: "1.2em", paddingLeft: "0" },
      "& .cm-changeGutter .cm-gutterElement": { textAlign: "center" },
      "&.cm-merge-a .cm-changedLineGutter": { background: REMOVED, color: "var(--red)" },
      "&.cm-merge-b .cm-changedLineGutter": { background: ADDED, color: "var(--green)" },
      "&.cm-merge-a .cm-changedLineGutter::before": { content: '"-"' },
      "&.cm-merge-b .cm-changedLineGutter::before": { content: '"+"' },
      // Fonts can lack the library's character for a fold.
      ".cm-collapsedLines": { color: "var(--faint)", background: "var(--sunk)" },
      ".cm-collapsedLines::before, .cm-collapsedLines::after": { content: '"…"' },
    }),
    syntaxHighlighting(HighlightStyle.define(specs)),
    yaml(),
    lineNumbers(),
    bracketMatching(),
    EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", tabindex: "0" }),
    EditorView.domEventHandlers({ beforeinput: typeOver }),
  ];
}

/**
 * Replace the selected text by what is typed. Otherwise the browser does it, and keeps the color of the old text in an
 * inline style, which the policy forbids.
 * @param {InputEvent} event
 * @param {EditorView} view
 */
function typeOver(event, view) {
  if (event.inputType !== "insertText" || event.isComposing || event.data === null || view.state.selection.main.empty) return false;
  event.preventDefault();
  view.dispatch(view.state.update(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true }));
  return true;
}

/**
 * @param {object} props
 * @param {string} props.label
 * @param {string} props.text what it contains at first
 * @param {(text: string) => void} props.onChange
 * @param {readonly Diagnostic[]} props.mistakes marked in the text
 * @param {{ current: EditorView | null }} props.view is set once the editor is there
 */
export function Editor({ label, text, onChange, mistakes, view }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const library = useRef(/** @type {Library | null} */ (null));
  const latest = useRef({ onChange, mistakes });
  latest.current = { onChange, mistakes };
  const mark = () => {
    if (!view.current || !library.current) return;
    const { length } = view.current.state.doc; // the text can have become shorter since
    const inside = latest.current.mistakes.map((one) => ({ ...one, from: Math.min(one.from, length), to: Math.min(one.to, length) }));
    view.current.dispatch(library.current.setDiagnostics(view.current.state, inside));
  };
  useEffect(
    () =>
      whenLoaded(place.current, (loaded, root) => {
        const { EditorState, EditorView, history, historyKeymap, defaultKeymap, keymap, indentOnInput, lintGutter } = loaded;
        const changes = EditorView.updateListener.of(({ docChanged, state }) => docChanged && latest.current.onChange(state.doc.toString()));
        const extensions = [...appearance(loaded, label), history(), indentOnInput(), lintGutter(), keymap.of([...defaultKeymap, ...historyKeymap]), changes];
        const made = new EditorView({ state: EditorState.create({ doc: text, extensions }), parent: root, root });
        library.current = loaded;
        view.current = made;
        mark();
        return () => {
          view.current = null;
          made.destroy();
        };
      }),
    [],
  );
  useEffect(mark, [mistakes]);
  return html`<div ref=${place} class="editor"></div>`;
}

/** On a phone, two texts are below each other, each below its name. */
const STACKED = `@media (max-width: 48rem) {
  .cm-mergeViewEditors { flex-direction: column; }
  .cm-mergeView .cm-mergeViewEditor { flex: none; }
  .cm-mergeSpacer { display: none; }
  .cm-mergeView .cm-editor::before { content: attr(data-name); padding: 0.3rem 0.5rem; font: 600 14px system-ui, sans-serif; color: var(--faint); }
}`;

/** Two texts side by side, with their differences. @param {{ names: [string, string], before: string, after: string }} props */
export function Differences({ names, before, after }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(
    () =>
      whenLoaded(place.current, (loaded, root) => {
        const { EditorState, EditorView, MergeView } = loaded;
        const side = (/** @type {string} */ doc, /** @type {string} */ name) => ({
          doc,
          extensions: [...appearance(loaded, name), EditorState.readOnly.of(true), EditorView.lineWrapping],
        });
        const collapseUnchanged = { margin: 3, minSize: 6 };
        const made = new MergeView({ a: side(before, names[0]), b: side(after, names[1]), parent: root, root, collapseUnchanged });
        [made.a, made.b].forEach(({ dom }, index) => (dom.dataset.name = names[index]));
        const stacked = new CSSStyleSheet();
        stacked.replaceSync(STACKED);
        root.adoptedStyleSheets.push(stacked);
        return () => made.destroy();
      }),
    [],
  );
  return html`<div class="sides">${names.map((name) => html`<span key=${name}>${name}</span>`)}</div>
    <div ref=${place} class="editor"></div>`;
}

/**
 * Call `make` with the library and a shadow tree, unless the place is gone before. Returns a function that undoes it.
 * @param {HTMLElement | null} place
 * @param {(library: Library, root: ShadowRoot) => () => void} make
 */
function whenLoaded(place, make) {
  let wanted = true;
  let undo = () => {};
  const begin = (/** @type {Library} */ library) => {
    if (wanted && place) undo = make(library, place.attachShadow({ mode: "open" }));
  };
  const fail = () => {
    if (place) place.textContent = "The editor cannot be loaded. Reload the page.";
    compareFiles();
  };
  import("../../vendor/editor.js").then(begin, fail);
  return () => {
    wanted = false;
    undo();
  };
}
