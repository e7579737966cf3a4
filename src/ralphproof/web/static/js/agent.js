// The live events of an agent: a bounded list, drawn once a frame.
import { read } from "./api.js";
import { failed, h, keyed, put, write } from "./dom.js";
import { inFrame } from "./deferred.js";
import { sign } from "./signs.js";
import { cost, count, known, line, short } from "./text.js";

const MOST = 400; // entries on the page
const NEAR = 60; // pixels from the end within which the list keeps scrolling

/** A list of an agent's events. */
export class Events {
  constructor() {
    this.list = h("ol", { class: "events" });
    this.open = new Map();
    this.shown = [];
  }

  add(event) {
    const made = this.entry(event);
    if (!made) return;
    this.list.append(made);
    this.shown.push(made);
    while (this.shown.length > MOST) this.shown.shift().remove();
  }

  entry(event) {
    switch (event.kind) {
      case "said":
        return h("li", { class: "said" }, event.text);
      case "toolStarted":
        return this.tool(event);
      case "toolEnded":
        return this.toolEnd(event);
      case "denied":
        return note("bad", "bang", `not permitted: ${event.tool} ${event.reason ?? ""}`);
      case "asked":
        return note("warn", "query", `asks, and nobody is there: ${event.question}`);
      case "limited":
        return note("warn", "bars", `the service refuses: ${event.message}`);
      case "started":
        return note("dim", "dot", ["begins", event.model, event.version].filter(Boolean).join(", "));
      case "ended":
        return event.ok
          ? note("dim", "dash", "has ended its turn")
          : note("bad", "bang", `ended with an error: ${event.error ?? ""}`);
      case "unparsed":
        return h("li", { class: "raw" }, line(event.raw, 1000));
      default:
        return null;
    }
  }

  tool(event) {
    const made = h(
      "li",
      { class: "tool" },
      sign("dot"),
      h("b", {}, line(event.tool, 80)),
      " ",
      h("code", {}, line(event.summary ?? "", 400)),
    );
    this.open.set(event.toolCall, made);
    if (this.open.size > MOST) this.open.delete(this.open.keys().next().value);
    return made;
  }

  toolEnd(event) {
    const began = this.open.get(event.toolCall);
    this.open.delete(event.toolCall);
    const made = began ?? h("li", { class: "tool" }, sign("dot"), h("b", {}, "a tool"));
    made.classList.add(event.ok ? "good" : "bad");
    made.firstChild.replaceWith(sign(event.ok ? "tick" : "cross"));
    const size = event.lineCount > 1 ? h("small", {}, ` ${count(event.lineCount, "line")}`) : "";
    made.append(...[h("span", { class: "unseen" }, event.ok ? " done" : " failed"), size].filter(Boolean));
    if (event.output)
      made.append(h("details", {}, h("summary", {}, "output"), h("pre", { tabindex: "0" }, event.output)));
    return began?.isConnected || this.shown.includes(began) ? null : made;
  }
}

function note(tone, name, words) {
  return h("li", { class: `note ${tone}` }, sign(name), line(words, 600));
}

/** The panel beside a run: the current turn, or the last one. */
export class AgentPanel {
  constructor(run) {
    this.run = run;
    this.waiting = [];
    this.highest = new Map();
    this.missed = 0;
    this.turn = "";
    this.name = h("h2", {}, "Agent");
    this.figures = h("p", { class: "figures dim" });
    this.todos = h("ul", { class: "todos", "aria-label": "The agent's own list" });
    this.lost = h("p", { class: "dim", hidden: true });
    this.place = h("div", {
      class: "stream",
      tabindex: "0",
      role: "log",
      "aria-live": "off",
      "aria-label": "What the agent says and does",
    });
    this.node = h(
      "section",
      { class: "agent", "aria-label": "Agent" },
      this.name,
      this.todos,
      this.lost,
      this.place,
      this.figures,
    );
    this.begin("");
  }

  begin(turn) {
    this.turn = turn;
    this.missed = 0;
    this.events = new Events();
    put(this.place, this.events.list);
    keyed(
      this.todos,
      [],
      () => "",
      () => null,
    );
    write(this.figures, "");
  }

  /** Add a batch of the stream. Events that were seen before, by turn and number, are dropped. */
  hear(data) {
    const highest = this.highest.get(data.log) ?? -1;
    const fresh = data.events.filter((event) => event.number > highest);
    if (data.log !== this.turn && (fresh.length || !this.highest.has(data.log))) {
      this.waiting = [];
      this.begin(data.log);
    }
    if (!fresh.length) return;
    this.missed += fresh[0].number - highest - 1;
    this.highest.set(data.log, fresh.at(-1).number);
    this.waiting.push(...fresh);
    if (this.waiting.length > 2 * MOST) this.shorten();
    this.frame ??= inFrame(() => this.draw());
  }

  /** Drop old events that were not drawn yet, except to-do lists and costs. */
  shorten() {
    const late = this.waiting.length - MOST;
    const kept = this.waiting.filter(
      (event, at) => at >= late || event.kind === "todosChanged" || event.kind === "spent",
    );
    this.missed += this.waiting.length - kept.length;
    this.waiting = kept.length > 2 * MOST ? kept.slice(-MOST) : kept;
  }

  draw() {
    this.frame = null;
    const { place } = this;
    const follows = place.scrollHeight - place.scrollTop - place.clientHeight < NEAR;
    const todo = this.waiting.findLast((event) => event.kind === "todosChanged");
    const spent = this.waiting.findLast((event) => event.kind === "spent");
    const progress = this.waiting.findLast((event) => event.kind === "progress");
    for (const event of this.waiting.slice(-MOST)) this.events.add(event);
    this.waiting = [];
    if (todo) this.list(todo.todos ?? []);
    if (spent) write(this.figures, spentWords(spent, this.going));
    else if (progress) write(this.figures, line(progress.text, 120));
    this.lost.hidden = this.missed <= 0;
    write(this.lost, `${count(this.missed, "earlier thing")} not shown; the log has all of it`);
    const [, iteration, again] = /^agent_0*(\d+)(?:\D+(\d+))?$/.exec(this.turn) ?? [];
    write(this.name, iteration ? `Agent in iteration ${iteration}${again ? `, turn ${again}` : ""}` : "Agent");
    this.node.dataset.last = String(this.highest.get(this.turn) ?? 0);
    if (follows) place.scrollTop = place.scrollHeight;
  }

  list(items) {
    const signs = { done: "tick", active: "dot", pending: "ring" };
    const numbered = items.slice(0, 40).map((item, at) => ({ ...item, at }));
    keyed(
      this.todos,
      numbered,
      (item) => item.at,
      (item) =>
        h(
          "li",
          { class: known(signs, item.state) ? item.state : "" },
          sign(known(signs, item.state) ?? "ring"),
          h("span", { class: "unseen" }, `${item.state}: `),
          line(item.text, 200),
        ),
    );
  }

  /** Without a live turn, load and show the last one, once. */
  show(page, iterations) {
    this.going = page.state === "running";
    this.node.classList.toggle("live", this.going);
    if (page.state === "running" || page.state === "orphaned" || this.turn || this.asked) return;
    const turns = [...iterations.values()]
      .sort((one, other) => one.number - other.number)
      .flatMap((one) => one.turns ?? []);
    if (!turns.length) return;
    this.asked = true;
    const name = turns.at(-1).log;
    read("runs", this.run, "activity", { log: name }).then(
      (data) => this.turn || this.hear({ log: name, events: data.events, first: 0, dropped: data.dropped }),
      (error) => put(this.place, failed(error)),
    );
  }

  close() {
    cancelAnimationFrame(this.frame);
  }
}

function spentWords(spent, going) {
  const use = spent.usage ?? { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0, cacheWriteTokens: 0 };
  const tokens = use.inputTokens + use.outputTokens + use.cacheReadTokens + use.cacheWriteTokens;
  return `this turn${going ? " so far" : ""}: ${cost(spent.cost)}${tokens ? `, ${short(tokens)} tokens` : ""}`;
}
