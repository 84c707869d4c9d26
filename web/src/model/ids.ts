/** References between rows: a task by its taskId, a relay of wide edges by its key, and the row `task-graph`. */

export const GRAPH = "task-graph";

export const isRelay = (reference: string): boolean => reference.startsWith("join:") || reference.startsWith("fork:");

/** Whether any number of rows require a join by this name: one of a group. Other joins work for one row. */
export const isShared = (reference: string): boolean =>
  reference.startsWith("join:group-") && !/^[^:]*:[^:]*:.*-\d+$/.test(reference);

export const rowKey = (reference: string): string =>
  reference.includes(":") || reference === GRAPH ? reference : `task:${reference}`;

export const eventKey = (sequence: number): string => `event:${String(sequence).padStart(10, "0")}`;
