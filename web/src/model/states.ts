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

const look = (name: string, letter: string, mark: string): Look => ({ name, letter, mark, colour: `--${name}` });

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

export const CODE: Readonly<Record<string, number>> = Object.fromEntries(TASK_STATES.map((each, code) => [each.name, code]));
