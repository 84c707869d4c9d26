/** Keeps a view that fails from taking the page with it: what went wrong is shown in its place. */

import { Component, type ComponentChildren } from "preact";

import { html } from "./html.ts";
import { TroubleBox } from "./parts.ts";

interface Props {
  /** The address: at another one it tries again. */
  place: string;
  children?: ComponentChildren;
}

export class Guard extends Component<Props, { trouble?: unknown }> {
  override state: { trouble?: unknown } = {};

  override componentDidCatch(trouble: unknown): void {
    console.error(trouble);
    this.setState({ trouble });
  }

  override componentDidUpdate({ place }: Props): void {
    if (place !== this.props.place && this.state.trouble !== undefined) this.setState({ trouble: undefined });
  }

  override render(): ComponentChildren {
    if (this.state.trouble === undefined) return this.props.children;
    const again = (): void => this.setState({ trouble: undefined });
    return html`<${TroubleBox} trouble=${this.state.trouble} again=${again} />`;
  }
}
