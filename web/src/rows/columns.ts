/** Columns as sources send them, as the port has them. */

import type { Value } from "./port.ts";

const ZERO = 48;
const NINE = 57;

/** Puts texts that are spread over columns (`task`, `task2`, …) together, in place. Other names are letters alone. */
export function gather(columns: Record<string, Value>): void {
  let spread = false;
  for (const name in columns) {
    const last = name.charCodeAt(name.length - 1);
    spread ||= last >= ZERO && last <= NINE;
  }
  if (!spread) return;
  for (const name of Object.keys(columns)) {
    if (columns[`${name}2`] === undefined || /\d$/.test(name)) continue;
    let whole = String(columns[name]);
    for (let part = 2; columns[`${name}${part}`] !== undefined; part++) {
      whole += String(columns[`${name}${part}`]);
      delete columns[`${name}${part}`];
    }
    columns[name] = whole;
  }
}

/** The same of columns of the API and of archives, whose times and doubles are objects with their kind. */
export function plain(columns: Record<string, unknown>): Record<string, Value> {
  for (const name in columns) {
    const value = columns[name];
    if (typeof value !== "object" || value === null) continue;
    const kinds = value as { time?: string; double?: number };
    columns[name] = kinds.time ?? kinds.double ?? "";
  }
  const made = columns as Record<string, Value>;
  gather(made);
  return made;
}
