/** Changes as the address names them, and how two plans of one change differ. */

export type Change = Readonly<Record<string, unknown>> & { readonly change: string };

interface Columns {
  readonly [name: string]: { readonly before: unknown; readonly after: unknown };
}

export interface PlannedTask {
  readonly label: string;
  readonly taskId: string;
  readonly from: string | null;
  readonly to: string | null;
  readonly run: number;
  readonly toRun: number;
  readonly columns: Columns;
}

export interface Plan {
  readonly plan: string;
  readonly revision: number;
  readonly event: number;
  readonly graph: Columns;
  readonly limits: readonly {
    readonly group: string | null;
    readonly before: number | null;
    readonly after: number | null;
  }[];
  readonly tasks: readonly PlannedTask[];
  readonly taskCount: number;
  readonly held: number;
  readonly ready: readonly string[];
  readonly readyCount: number;
  readonly facts: readonly unknown[];
  readonly refused: readonly string[];
}

/** Whether a plan would leave all as it is. */
export function isNothing(plan: Plan): boolean {
  return plan.taskCount + plan.limits.length + plan.facts.length + Object.keys(plan.graph).length === 0;
}

type Kind = { readonly takes: readonly string[]; readonly needs: readonly (readonly string[])[] };

/** needs: of each of these lists one must be there. */
export const KINDS: Readonly<Record<string, Kind>> = {
  rerun: {
    takes: ["labels", "group", "failed", "all", "downstream", "reason"],
    needs: [["labels", "group", "failed", "all"]],
  },
  cancel: { takes: ["labels", "group", "terminate", "reason"], needs: [] },
  pause: { takes: ["group", "reason"], needs: [] },
  resume: { takes: ["group", "budget", "reason"], needs: [] },
  deactivate: { takes: ["labels", "reason"], needs: [["labels"]] },
  activate: { takes: ["labels", "reason"], needs: [["labels"]] },
  "set-limit": { takes: ["max", "group", "reason"], needs: [["max"]] },
  prioritize: { takes: ["priority", "labels", "group", "reason"], needs: [["priority"]] },
  edit: { takes: [], needs: [["edit"]] },
  extend: { takes: [], needs: [["extension"]] },
};

/** Kinds whose document is written, and the key that has it. */
export const WRITTEN: Readonly<Record<string, string>> = { edit: "edit", extend: "extension" };

const FLAGS = ["failed", "all", "downstream", "terminate"];

/** Labels in a list of JSON; none where it is none. */
export function labelsOf(text: string): readonly string[] {
  try {
    const found: unknown = JSON.parse(text || "[]");
    return Array.isArray(found) ? found.map(String) : [];
  } catch {
    return [];
  }
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json) as unknown;
  } catch {
    return undefined;
  }
}

/** The change that an address names, with the document that was written for it; null while it lacks something. */
export function changeOf(query: URLSearchParams, document = ""): Change | null {
  const name = query.get("change") ?? "";
  const kind = KINDS[name];
  if (!kind) return null;
  const made: Record<string, unknown> & { change: string } = { change: name };
  const found = WRITTEN[name] && parsed(document);
  if (typeof found === "object" && found !== null) made[WRITTEN[name]!] = found;
  for (const name of kind.takes) {
    const text = query.get(name);
    if (!text) continue;
    if (name === "labels") {
      const labels = labelsOf(text);
      if (labels.length > 0) made.labels = labels;
    } else if (name === "max") {
      if (/^\d+$/.test(text)) made.max = Number(text);
    } else if (name === "budget") {
      if (/^\d+(\.\d+)?$/.test(text) && Number(text) > 0) made.budget = Number(text);
    } else made[name] = FLAGS.includes(name) ? text === "1" : text;
  }
  if (made.labels) for (const name of ["group", "failed", "all"]) delete made[name];
  else if (made.group) for (const name of ["failed", "all", "budget"]) delete made[name];
  return kind.needs.every((names) => names.some((name) => name in made)) ? made : null;
}

/** By taskId, what is other in the second plan: `new`, `changed`; what is no more in it is not there to be marked. */
export function changed(old: Plan, fresh: Plan): Map<string, string> {
  const known = new Map(old.tasks.map((each) => [each.taskId, JSON.stringify(each)]));
  const marks = new Map<string, string>();
  for (const each of fresh.tasks) {
    const before = known.get(each.taskId);
    if (before === undefined) marks.set(each.taskId, "new");
    else if (before !== JSON.stringify(each)) marks.set(each.taskId, "changed");
    known.delete(each.taskId);
  }
  return marks;
}

/** Tasks of the old plan that the new one leaves alone. */
export function gone(old: Plan, fresh: Plan): readonly PlannedTask[] {
  const known = new Set(fresh.tasks.map((each) => each.taskId));
  return old.tasks.filter((each) => !known.has(each.taskId));
}
