/** Forecasts that were asked for in this tab. Each costs the server seconds of CPU: none comes again by itself. */

import { signal } from "@preact/signals";

import { AS_IT_IS, type Forecast, isAsItIs, queryOf, type Supposed } from "../model/forecast.ts";
import type { Of } from "./graph.ts";
import { askServer, path, source } from "./source.ts";

const ANSWER_SECONDS = 300;
/** Two forecasts are compared if one is at most so much older than the other. */
const COMPARED_MS = 60_000;

export interface Asked {
  readonly busy: boolean;
  readonly value?: Forecast;
  /** When it came, in milliseconds since 1970. */
  readonly at?: number;
  readonly trouble?: unknown;
}

const NOT_ASKED: Asked = { busy: false };

/** Of one graph, by what was supposed. */
interface Kept {
  readonly of: string;
  readonly asked: ReadonlyMap<string, Asked>;
}

const kept = signal<Kept>({ of: "", asked: new Map() });

const nameOf = (id: string): string => `${source.value?.number} ${id}`;
const keyOf = ({ slots, limits, drop, fail }: Supposed): string => JSON.stringify([slots, limits, drop, fail]);

/** What is known by now; what reads it while it is drawn is drawn again when the answer comes. */
export function forecastOf(id: string, supposed = AS_IT_IS): Asked {
  const { of, asked } = kept.value;
  return (of === nameOf(id) && asked.get(keyOf(supposed))) || NOT_ASKED;
}

function keep(of: string, supposed: Supposed, asked: Asked): void {
  const before = kept.peek();
  if (asked.busy && before.of !== of) kept.value = { of, asked: new Map() };
  if (kept.peek().of !== of) return; // another graph is open by now
  kept.value = { of, asked: new Map(kept.peek().asked).set(keyOf(supposed), asked) };
}

/** Have the server rehearse the rest of the graph. */
export async function askForecast({ graph }: Of, supposed = AS_IT_IS): Promise<void> {
  const of = nameOf(graph.id);
  const before = forecastOf(graph.id, supposed);
  if (before.busy) return;
  keep(of, supposed, { ...before, busy: true });
  try {
    const query = queryOf(supposed, graph.ids.length, isAsItIs(supposed));
    const value = await askServer<Forecast>(`${path("graphs", graph.id, "rehearsal")}?${query}`, ANSWER_SECONDS);
    keep(of, supposed, { busy: false, value, at: Date.now() });
  } catch (trouble) {
    keep(of, supposed, { ...before, busy: false, trouble });
  }
}

/** The same, and as it is now, where that was not asked for within the last minute: one after the other. */
export async function askBoth(open: Of, supposed: Supposed): Promise<void> {
  const { at = 0 } = forecastOf(open.graph.id);
  if (Date.now() - at > COMPARED_MS) await askForecast(open);
  await askForecast(open, supposed);
}
