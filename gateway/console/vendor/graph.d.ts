/** The types of the parts of `graph.js` that the console uses. */

export interface Placed {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Routed {
  points: { x: number; y: number }[];
  x?: number;
  y?: number;
}

export class Graph {
  constructor(options: { multigraph?: boolean });
  setGraph(options: object): this;
  graph(): { width?: number; height?: number };
  setNode(name: string, options: object): this;
  setEdge(from: string, to: string, options: object, name: string): this;
  node(name: string): Placed;
  edge(from: string, to: string, name: string): Routed;
}

export function layout(graph: Graph): void;
