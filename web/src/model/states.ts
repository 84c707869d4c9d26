/** The states of tasks and graphs: how each is called, and how it looks without its colour. */

export interface Look {
  readonly name: string;
  /** One letter, on small marks. */
  readonly letter: string;
  /** A character of a shape of its own, for lists. */
  readonly mark: string;
  /** The custom property of `page.css` that has its colour. */
  readonly colour: string;
}

const look = (name: string, letter: string, mark: string, colour = name): Look => {
  return { name, letter, mark, colour: `--${colour}` };
};

/** By code: `Graph.state[i]` is a place in this list. `cancelled` is `exception` with `cancelled` in its resolution. */
export const TASK_STATES: readonly Look[] = [
  look("unscheduled", "·", "○"),
  look("pending", "P", "◔"),
  look("running", "R", "▶"),
  look("completed", "C", "✓"),
  look("failed", "F", "✗"),
  look("exception", "E", "!"),
  look("cancelled", "X", "⊘"),
  look("skipped", "S", "↷"),
];

export const CODE: Readonly<Record<string, number>> = Object.fromEntries(
  TASK_STATES.map((each, code) => [each.name, code]),
);

export const GRAPH_STATES: readonly Look[] = [
  look("submitting", "s", "◌", "pending"),
  look("running", "R", "▶"),
  look("paused", "‖", "‖", "pending"),
  look("blocked", "B", "■", "failed"),
  look("finished", "C", "✓", "completed"),
  look("cancelling", "x", "◍", "exception"),
  look("cancelled", "X", "⊘"),
  look("deleting", "d", "◌", "skipped"),
  look("deleted", "D", "∅", "skipped"),
  look("restoring", "r", "◌", "pending"),
  look("moving", "m", "◌", "pending"),
  look("moved", "M", "→", "skipped"),
];

const UNKNOWN = look("unknown", "?", "?", "unscheduled");
const BY_NAME = new Map([...GRAPH_STATES, ...TASK_STATES].map((each) => [each.name, each]));

/** How a state of a task or graph looks; one of a newer version looks unknown, and keeps its name. */
export function lookOf(state: string): Look {
  return BY_NAME.get(state) ?? { ...UNKNOWN, name: state || "unknown" };
}

/** Codes of the states in which a task has failed for good. */
export const FAILED_CODES: ReadonlySet<number> = new Set([CODE.failed!, CODE.exception!, CODE.cancelled!]);
