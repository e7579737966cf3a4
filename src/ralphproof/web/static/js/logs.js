// What the agent and the checks printed: a part of it, more in both directions, and its end as it grows.
import { read } from "./api.js";
import { failed, h, keyed, put, write } from "./dom.js";
import { bytes, known, line, visible } from "./text.js";

const PIECE = 65536;
const MOST = 4 * PIECE; // that the server gives at once
const KEPT = 1 << 20; // characters on the page
const AGAIN_MS = 1000;
const SIZES = { out: "bytes", stderr: "stderrBytes", prompt: "promptBytes" }; // of a part, in the list

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
    if (this.asking) {
      this.stale = true; // what is being answered may be from before
      return;
    }
    this.asking = true;
    this.stale = false;
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
      this.size = this.log?.[known(SIZES, this.part)] ?? this.size;
      this.tell();
    } catch (error) {
      put(this.note, failed(error));
    }
    this.asking = false;
    if (this.stale) this.index();
  }

  get log() {
    return this.known?.find((one) => one.name === this.name);
  }

  mark() {
    for (const link of this.list.querySelectorAll("a")) {
      if (link.dataset.name === visible(this.name)) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    const { log } = this;
    write(this.title, this.name || "Log");
    const there = [
      ["out", "output", log?.bytes],
      ["stderr", "stderr", log?.stderrBytes],
      ["prompt", "prompt", log?.promptBytes],
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
    const opened = (this.opened = {});
    this.asked = Promise.resolve();
    this.shown = false;
    this.pieces = []; // what is shown: each with its place in the log, which is not that of its text
    this.size = 0;
    this.skipped = null;
    this.text.textContent = "";
    await this.ask(() => this.load({}));
    if (opened === this.opened) this.text.scrollTop = this.text.scrollHeight;
  }

  /** One question behind the other: each begins where the answer before it ended. */
  ask(question) {
    const { opened } = this;
    return (this.asked = this.asked.then(() => opened === this.opened && question()));
  }

  /** Whether it was answered. */
  async load(where, ahead = false) {
    const { name, part, opened } = this;
    try {
      const told = await read("runs", this.run.run, "log", { name, part, ...where });
      if (opened !== this.opened) return false;
      put(this.note);
      this.put(told, ahead);
      return true;
    } catch (error) {
      put(this.note, failed(error));
      return false;
    }
  }

  put(told, ahead) {
    const { text } = this;
    if (!this.shown) {
      if (told.offset > this.next && this.next) this.skipped = { from: this.next, to: told.offset };
      this.pieces = [];
      text.textContent = "";
      this.shown = true;
    }
    this.size = told.bytes;
    if (told.nextOffset > told.offset) this.add(told, ahead);
    this.tell();
  }

  add({ text: words, offset, nextOffset }, ahead) {
    const { text } = this;
    const piece = { node: document.createTextNode(visible(words)), offset, nextOffset };
    if (ahead) {
      const high = text.scrollHeight;
      this.pieces.unshift(piece);
      text.prepend(piece.node);
      text.scrollTop += text.scrollHeight - high;
    } else {
      this.pieces.push(piece);
      text.append(piece.node);
      this.shorten();
      if (this.follow.checked) text.scrollTop = text.scrollHeight;
    }
  }

  get from() {
    return this.pieces[0]?.offset ?? 0;
  }

  get next() {
    return this.pieces.at(-1)?.nextOffset ?? 0;
  }

  /** How much of it is shown, and whether there is more. */
  tell() {
    const { from, next, size, skipped } = this;
    const missed = skipped ? Math.min(from, skipped.to) - skipped.from : 0;
    const fast = missed > 0 ? `; ${bytes(missed)} before that came too fast to be shown` : "";
    write(this.range, size === 0 ? "nothing was printed" : `${bytes(from)} to ${bytes(next)} of ${bytes(size)}${fast}`);
    this.earlier.disabled = from <= 0;
    this.later.disabled = next >= size;
  }

  /** Only so much stays on the page; what goes can be loaded again from the beginning of what is left. */
  shorten() {
    let length = this.pieces.reduce((sum, piece) => sum + piece.node.length, 0);
    while (length > KEPT && this.pieces.length > 1) {
      const { node } = this.pieces.shift();
      length -= node.length;
      node.remove();
    }
  }

  before() {
    return this.ask(() => {
      const offset = Math.max(0, this.from - PIECE);
      return this.from > 0 && this.load({ offset, most: this.from - offset }, true);
    });
  }

  after() {
    return this.ask(() => this.load(this.shown ? { offset: this.next, most: PIECE } : {}));
  }

  /** While it lives, and after that until nothing is left: its last words come with its end. */
  async grow() {
    const more = this.log?.live || this.next < this.size;
    if (this.growing || document.hidden || !this.follow.checked || !more) return;
    this.growing = true;
    await this.ask(() => this.catchUp());
    this.growing = false;
  }

  /** All that has come; where that is more than stays on the page, its end. */
  async catchUp() {
    let before = -1;
    while (await this.load(this.shown ? { offset: this.next, most: MOST } : {})) {
      if (this.next === before || this.next >= this.size) return; // what is not whole yet is not told yet
      before = this.next;
      this.shown = this.size - this.next <= KEPT;
    }
  }

  close() {
    this.opened = null;
    clearInterval(this.timer);
  }
}
