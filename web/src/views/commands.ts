/** Commands in the words of a remedy: where the page plans what one would do. */

import { href } from "../route.ts";

export interface Step {
  readonly command: string;
  /** Where the page does it; "" where it cannot. */
  readonly address: string;
  readonly title: string;
}

/** The words of a command, as a shell has them. */
export function words(command: string): string[] {
  const found: string[] = [];
  for (const match of command.matchAll(/(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+/g)) {
    found.push(
      match[0].replace(
        /'([^']*)'|"([^"]*)"|\\(.)/g,
        (_, single = "", double = "", escaped = "") => `${single}${double}${escaped}`,
      ),
    );
  }
  return found;
}

const LABELLED = ["rerun", "cancel", "activate", "deactivate"];

/** What a command comes to on the page; undefined for one that it does not know whole. */
function planned(command: string): { address: string; title: string } | undefined {
  const [program, name = "", ...rest] = words(command);
  if (program !== "taskgraph") return undefined;
  const flags = rest.filter((each) => each.startsWith("--") && each !== "--");
  const [id, ...labels] = rest.filter((each) => !each.startsWith("--"));
  if (!id) return undefined;
  const at = (query: Record<string, string | number | boolean>): string =>
    href(["g", id, "plan"], { change: name, ...query });
  if (name === "rerun" && flags.every((each) => ["--failed", "--downstream"].includes(each))) {
    const failed = flags.includes("--failed");
    if (!failed && labels.length === 0) return undefined;
    const query = { failed, downstream: flags.includes("--downstream"), labels: failed ? "" : JSON.stringify(labels) };
    return { address: at(query), title: failed ? "Rerun all that failed …" : `Rerun ${labels.join(", ")} …` };
  }
  if (LABELLED.includes(name) && flags.every((each) => each === "--terminate") && labels.length > 0) {
    const query = { terminate: flags.length > 0, labels: JSON.stringify(labels) };
    return { address: at(query), title: `${name[0]!.toUpperCase()}${name.slice(1)} ${labels.join(", ")} …` };
  }
  if ((name === "resume" || name === "pause") && labels.length === 0) {
    const title = name === "resume" ? "Resume the graph …" : "Pause the graph …";
    if (flags.length === 0) return { address: at({}), title };
  }
  if (name === "resume" && flags.length === 1 && flags[0] === "--budget") {
    return { address: at({}), title: "Resume the graph, with a larger budget …" };
  }
  if (name === "resume" && flags.length === 1 && flags[0] === "--group" && labels.length === 1) {
    return { address: at({ group: labels[0]! }), title: `Resume group ${labels[0]} …` };
  }
  return undefined;
}

/** The commands in a remedy, in order. */
export function steps(remedy: string): Step[] {
  const found = [...remedy.matchAll(/taskgraph (?:'[^']*'|[^;,`'])+/g)].map((each) => each[0].trim());
  return found.map((command) => ({ command, address: "", title: "", ...planned(command) }));
}
