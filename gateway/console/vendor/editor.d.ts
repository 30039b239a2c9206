/** The types of the parts of `editor.js` that the console uses. */

export type Extension = unknown;
export interface Diagnostic {
  from: number;
  to: number;
  severity: "error" | "warning";
  message: string;
}
export interface SyntaxNode {
  readonly name: string;
  readonly from: number;
  readonly to: number;
  readonly firstChild: SyntaxNode | null;
  readonly nextSibling: SyntaxNode | null;
}
export interface EditorState {
  readonly doc: { readonly length: number; toString(): string };
  readonly selection: { readonly main: { readonly empty: boolean } };
  replaceSelection(text: string): object;
  update(...changes: object[]): unknown;
}
export const EditorState: {
  create(options: { doc: string; extensions: Extension[] }): EditorState;
  readonly readOnly: { of(value: boolean): Extension };
};
export class EditorView {
  constructor(options: { state: EditorState; parent: ShadowRoot; root: ShadowRoot });
  readonly state: EditorState;
  readonly dom: HTMLElement;
  dispatch(change: unknown): void;
  focus(): void;
  destroy(): void;
  static theme(rules: Record<string, Record<string, string>>): Extension;
  static updateListener: { of(listener: (update: { docChanged: boolean; state: EditorState }) => void): Extension };
  static contentAttributes: { of(attributes: Record<string, string>): Extension };
  static domEventHandlers(handlers: { beforeinput: (event: InputEvent, view: EditorView) => boolean }): Extension;
  static lineWrapping: Extension;
}
export class MergeView {
  constructor(options: {
    a: { doc: string; extensions: Extension[] };
    b: { doc: string; extensions: Extension[] };
    parent: ShadowRoot;
    root: ShadowRoot;
    collapseUnchanged?: { margin: number; minSize: number };
  });
  a: EditorView;
  b: EditorView;
  destroy(): void;
}
export const HighlightStyle: { define(specs: object[]): unknown };
export const defaultHighlightStyle: { specs: readonly { tag: unknown; color?: string }[] };
export function syntaxHighlighting(style: unknown): Extension;
export function yaml(): { language: { parser: { parse(text: string): { topNode: SyntaxNode } } } };
export const keymap: { of(bindings: readonly unknown[]): Extension };
export const defaultKeymap: readonly unknown[];
export const historyKeymap: readonly unknown[];
export function history(): Extension;
export function lineNumbers(): Extension;
export function lintGutter(): Extension;
export function bracketMatching(): Extension;
export function indentOnInput(): Extension;
export function setDiagnostics(state: EditorState, diagnostics: readonly Diagnostic[]): unknown;
