/** The types of the parts of `ui.js` that the console uses. */

export type Node = unknown;
export type Component<Props = any> = (props: Props) => Node;

export const h: (type: unknown, props?: unknown, ...children: unknown[]) => Node;
export const html: (strings: TemplateStringsArray, ...values: unknown[]) => any;
export const Fragment: Component;
export function render(node: Node, parent: Element): void;

export function useEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
export function useRef<T>(initial: T): { current: T };
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];

export interface ReadonlySignal<T> {
  readonly value: T;
  peek(): T;
  subscribe(listener: (value: T) => void): () => void;
}
export interface Signal<T> extends ReadonlySignal<T> {
  value: T;
}
export function signal<T>(value: T): Signal<T>;
export function computed<T>(compute: () => T): ReadonlySignal<T>;
export function effect(run: () => void | (() => void)): () => void;
export function batch<T>(change: () => T): T;
export function untracked<T>(read: () => T): T;
export function useSignal<T>(initial: T): Signal<T>;
export function useComputed<T>(compute: () => T): ReadonlySignal<T>;
export function useSignalEffect(effect: () => void | (() => void)): void;
