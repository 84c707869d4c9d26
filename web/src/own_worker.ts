/** The worker of the page. The browser takes its address through our policy alone (see the page's headers). */

/** Set by build.mjs, which knows the hash in the name. */
declare const WORKER: string;

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

/** In a report, which is one file, the code of the worker is a text of the document. */
function addressOf(): string {
  const inlined = document.getElementById("worker")?.textContent;
  if (!inlined) return new URL(WORKER, import.meta.url).href;
  return URL.createObjectURL(new Blob([inlined], { type: "text/javascript" }));
}

export function ownWorker(): Worker {
  const address = addressOf();
  const policy = window.trustedTypes?.createPolicy("taskgraph", {
    createScriptURL(text) {
      if (text !== address) throw new TypeError(`${text} is no script of the page`);
      return text;
    },
  });
  return new Worker(policy ? policy.createScriptURL(address) : address, { type: "module" });
}
