/** What the worker is asked for drawings, one picture at a time. */

import type { Answer, Ask } from "../worker.ts";
import type { Lines, Pen } from "./edges.ts";
import type { Places, Shape } from "./layout.ts";

/** An Ask without its number. */
type Question = { readonly shape: Shape } | { readonly lines: Lines } | { readonly pen: Pen };

let asked = 0;

export class Desk {
  private readonly stop = new AbortController();
  private readonly waiting = new Map<number, (answer: Answer) => void>();
  /** A picture is being drawn. */
  busy = false;

  constructor(private readonly worker: Worker) {
    const { signal } = this.stop;
    worker.addEventListener("message", (event: MessageEvent<Answer>) => this.take(event.data), { signal });
  }

  places(shape: Shape): Promise<Places> {
    return new Promise((done) => this.ask({ shape }, (answer) => "places" in answer && done(answer.places)));
  }

  lines(lines: Lines): void {
    this.ask({ lines });
  }

  picture(pen: Pen, done: (picture: ImageBitmap, pen: Pen) => void): void {
    this.busy = true;
    this.ask({ pen }, (answer) => {
      this.busy = false;
      if ("picture" in answer) done(answer.picture, answer.pen);
    });
  }

  destroy(): void {
    this.stop.abort();
    this.waiting.clear();
  }

  private ask(question: Question, answered?: (answer: Answer) => void): void {
    const ask = ++asked;
    if (answered) this.waiting.set(ask, answered);
    this.worker.postMessage({ ask, ...question } satisfies Ask);
  }

  private take(answer: Answer): void {
    const answered = this.waiting.get(answer.ask);
    this.waiting.delete(answer.ask);
    answered?.(answer);
  }
}
