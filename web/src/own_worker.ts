/** The workers of the page. The browser takes their addresses through our policy alone (see the page's headers). */

/** Set by build.mjs, which knows the hashes in the names; "" where there is none. */
declare const WORKER: string;
declare const PYTHON: string;

interface Policy {
  createScriptURL(text: string): string;
}

interface Policies {
  createPolicy(name: string, rules: { createScriptURL(text: string): string }): Policy;
}

declare global {
  interface Window {
    /** Not in every browser. */
    readonly trustedTypes?: Policies;
  }
}

const beside = (name: string): string => new URL(name, import.meta.url).href;

/** In a report, which is one file, the code of the worker is a text of the document. */
function addressOf(): string {
  const inlined = document.getElementById("worker")?.textContent;
  return inlined ? URL.createObjectURL(new Blob([inlined], { type: "text/javascript" })) : beside(WORKER);
}

let own = "";
let policy: Policy | undefined;

function started(address: string): Worker {
  policy ??= window.trustedTypes?.createPolicy("taskgraph", {
    createScriptURL(text) {
      if (text !== own && text !== beside(PYTHON)) throw new TypeError(`${text} is no script of the page`);
      return text;
    },
  });
  return new Worker(policy ? policy.createScriptURL(address) : address, { type: "module" });
}

export function ownWorker(): Worker {
  own ||= addressOf();
  return started(own);
}

/** Whether this page can load Python: a report asks for nothing. */
export const hasPython = (): boolean => PYTHON !== "";

export const pythonWorker = (): Worker => started(beside(PYTHON));
