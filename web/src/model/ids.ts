/** References between rows: a task by its taskId, a relay of wide edges by its key, and the row `task-graph`. */

export const GRAPH = "task-graph";

export const isRelay = (reference: string): boolean => reference.startsWith("join:") || reference.startsWith("fork:");

export const eventKey = (sequence: number): string => `event:${String(sequence).padStart(10, "0")}`;
