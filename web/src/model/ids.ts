/** Ids of graphs; and references between rows: a task by its taskId, a relay of wide edges by its key, `task-graph`. */

export const GRAPH = "task-graph";

/** What cannot be one is asked for nowhere: a table refuses it in words of its own. */
export const isGraphId = (text: string): boolean => /^[A-Za-z0-9_-]{1,64}$/.test(text);

export const isRelay = (reference: string): boolean => reference.startsWith("join:") || reference.startsWith("fork:");

export const eventKey = (sequence: number): string => `event:${String(sequence).padStart(10, "0")}`;
