/** The groups that a drawing shows: those of the graph, or where it has none, what labels begin with. */

import type { Graph } from "../model/graph.ts";

export interface Groups {
  readonly names: readonly string[];
  /** For each task a place in `names`, -1 for none. */
  readonly of: Int32Array;
}

const MOST = 60;

export function groupsOf(graph: Graph): Groups {
  if (graph.groups.length > 0) return { names: graph.groups, of: graph.group };
  return byPrefix(graph.labels);
}

/** What stands before the first `/`, `:`, `[`, `-`, `_` or digit; names that few labels share count as none. */
export function byPrefix(labels: readonly string[]): Groups {
  const count = new Map<string, number>();
  const prefix = labels.map((label) => /^[^/:[(\-_\d]+(?=[/:[(\-_\d])/.exec(label)?.[0] ?? label);
  for (const each of prefix) count.set(each, (count.get(each) ?? 0) + 1);
  const names = [...count].filter(([name, times]) => times > 1 && name).sort((a, b) => b[1] - a[1]);
  const kept = new Map(names.slice(0, MOST).map(([name], place) => [name, place]));
  return { names: [...kept.keys()], of: Int32Array.from(prefix, (each) => kept.get(each) ?? -1) };
}
