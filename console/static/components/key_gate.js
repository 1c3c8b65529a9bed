// Asks for an API key. It is kept in this tab until it is closed, and sent with every request.
import { get, Problem } from "../api.js";
import { html, useState } from "../html.js";
import { key, keyWanted, useKey } from "../state.js";
import { t } from "../texts.js";
import { Icon } from "./icon.js";

export function KeyGate() {
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState(key.peek() ? keyWanted.peek() : null);
  const enter = async (event) => {
    event.preventDefault();
    useKey(text.trim());
    try {
      await get("/models");
      keyWanted.value = null;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setWrong(error.message);
    }
  };
  return html`<main class="gate">
    <form class="card" onSubmit=${enter}>
      <span class="empty-icon"><${Icon} name="key" size=${28} /></span>
      <h1>${t.gate.title}</h1>
      <p class="muted">${t.gate.text}</p>
      <label class="field"><span>${t.gate.label}</span>
        <input class="input" type="password" autocomplete="off" spellcheck=${false} required autofocus value=${text}
          aria-describedby=${wrong ? "gate-wrong" : null} onInput=${(event) => setText(event.target.value)} />
      </label>
      ${wrong && html`<p class="note bad" id="gate-wrong" role="alert">${wrong}</p>`}
      <button class="button primary large">${t.gate.enter}</button>
      <p class="muted small-text">${t.gate.make} <code>protoquad keys create me --scope admin</code></p>
    </form>
  </main>`;
}
