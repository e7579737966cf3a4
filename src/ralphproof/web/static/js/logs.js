// What the agent and the checks printed: a part of it, more in both directions, and its end as it grows.
import { read } from "./api.js";
import { failed, h, keyed, put, write } from "./dom.js";
import { bytes, line, visible } from "./text.js";

const PIECE = 65536;
const KEPT = 1 << 20; // characters on the page
const AGAIN_MS = 1000;

export class Logs {
  constructor(place, run) {
    this.run = run;
    this.name = "";
    this.part = "out";
    this.list = h("ul", { class: "loglist" });
    this.title = h("h2", {}, "Log");
    this.parts = h("span", { class: "buttons" });
    this.range = h("small", { class: "dim" });
    this.follow = h("input", { type: "checkbox", id: "follow", checked: true });
    this.text = h("pre", { class: "log", tabindex: "0", role: "region", "aria-label": "Log" });
    this.earlier = h("button", { type: "button", onclick: () => this.before() }, "Load earlier");
    this.later = h("button", { type: "button", onclick: () => this.after() }, "Load later");
    this.note = h("div");
    put(
      place,
      h(
        "div",
        { class: "logs" },
        h("nav", { "aria-label": "Logs" }, this.list),
        h(
          "div",
          { class: "logview" },
          h("p", { class: "tools" }, this.title, this.parts, h("label", {}, this.follow, " follow")),
          h("p", { class: "tools" }, this.earlier, this.range),
          this.note,
          this.text,
          h("p", { class: "tools" }, this.later),
        ),
      ),
    );
    this.timer = setInterval(() => this.grow(), AGAIN_MS);
    this.index();
  }

  turn(asked) {
    this.name = asked.get("name") ?? this.name;
    this.part = asked.get("part") ?? "out";
    if (this.name) this.open();
    this.mark();
  }

  show(page) {
    const told = `${page.seq}`;
    if (told !== this.seq) this.index();
    this.seq = told;
  }

  async index() {
    if (this.asking) return;
    this.asking = true;
    try {
      const told = await read("runs", this.run.run, "logs");
      this.known = told.logs;
      const shown = [...told.logs].reverse();
      keyed(
        this.list,
        shown,
        (log) => log.name,
        (log) =>
          h(
            "li",
            {},
            h(
              "a",
              { href: this.run.address("logs", { name: log.name }), "data-nav": true, "data-name": log.name },
              line(log.name, 80),
            ),
            h("small", {}, `${bytes(log.bytes ?? 0)}${log.live ? " · live" : ""}`),
          ),
      );
      if (!shown.length) put(this.list, h("li", { class: "dim" }, "No log yet."));
      else if (!this.name) {
        this.name = (shown.find((log) => log.bytes) ?? shown[0]).name;
        this.open();
      }
      this.mark();
    } catch (error) {
      put(this.note, failed(error));
    }
    this.asking = false;
  }

  mark() {
    for (const link of this.list.querySelectorAll("a")) {
      if (link.dataset.name === visible(this.name)) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    const log = this.known?.find((one) => one.name === this.name);
    write(this.title, this.name || "Log");
    const there = [
      ["out", "output", log?.bytes],
      ["stderr", "stderr", log?.stderr],
      ["prompt", "prompt", log?.prompt],
    ].filter(([, , size]) => size !== null && size !== undefined);
    keyed(
      this.parts,
      there.map(([part, word]) => ({ part, word, here: part === this.part, name: this.name })),
      (one) => one.part,
      (one) =>
        h(
          "a",
          {
            href: this.run.address("logs", { name: one.name, part: one.part }),
            "aria-current": one.here ? "true" : null,
            class: "button",
          },
          one.word,
        ),
    );
  }

  async open() {
    this.from = this.next = 0;
    this.text.textContent = "";
    await this.load({});
    this.text.scrollTop = this.text.scrollHeight;
  }

  async load(where, ahead = false) {
    const { name, part } = this;
    try {
      const told = await read("runs", this.run.run, "log", { name, part, ...where });
      if (name !== this.name || part !== this.part) return;
      put(this.note);
      this.put(told, ahead);
    } catch (error) {
      put(this.note, failed(error));
    }
  }

  put(told, ahead) {
    const { text } = this;
    const follows = this.follow.checked && !ahead;
    const shown = document.createTextNode(visible(told.text));
    if (ahead) {
      const high = text.scrollHeight;
      text.prepend(shown);
      text.scrollTop += text.scrollHeight - high;
      this.from = told.offset;
    } else {
      if (!text.firstChild) this.from = told.offset;
      if (told.text) text.append(shown);
      this.next = told.next;
      if (follows) text.scrollTop = text.scrollHeight;
    }
    this.size = told.bytes;
    this.shorten(ahead);
    write(
      this.range,
      told.bytes === 0 ? "nothing was printed" : `${bytes(this.from)} to ${bytes(this.next)} of ${bytes(told.bytes)}`,
    );
    this.earlier.disabled = this.from <= 0;
    this.later.disabled = this.next >= told.bytes;
  }

  /** Only so much stays on the page; what goes can be loaded again from the beginning of what is left. */
  shorten(ahead) {
    while (this.text.textContent.length > KEPT && this.text.childNodes.length > 1 && !ahead) {
      const first = this.text.firstChild;
      this.from += new TextEncoder().encode(first.data).length;
      first.remove();
    }
  }

  before() {
    const offset = Math.max(0, this.from - PIECE);
    if (this.from > 0) this.load({ offset, most: this.from - offset }, true);
  }

  after() {
    return this.load({ offset: this.next, most: PIECE });
  }

  async grow() {
    const log = this.known?.find((one) => one.name === this.name);
    if (this.growing || document.hidden || !this.follow.checked || !log?.live) return;
    this.growing = true;
    await this.after();
    this.growing = false;
  }

  close() {
    clearInterval(this.timer);
  }
}
