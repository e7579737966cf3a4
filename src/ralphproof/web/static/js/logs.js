// Logs of the agent and of the checks: a part that can be extended in both directions, and follows its growing end.
import { read } from "./api.js";
import { failed, h, keyed, put, write } from "./dom.js";
import { bytes, known, line, visible } from "./text.js";

const PIECE = 65536;
const MOST = 4 * PIECE; // of one answer of the server
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
    const data = `${page.seq}`;
    if (data !== this.seq) this.index();
    this.seq = data;
  }

  async index() {
    if (this.asking) {
      this.stale = true; // the pending answer may be outdated
      return;
    }
    this.asking = true;
    this.stale = false;
    try {
      const data = await read("runs", this.run.run, "logs");
      this.known = data.logs;
      const shown = [...data.logs].reverse();
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
    this.pieces = []; // the shown pieces, each with its byte offsets in the log
    this.size = 0;
    this.skipped = null;
    this.text.textContent = "";
    await this.ask(() => this.load({}));
    if (opened === this.opened) this.text.scrollTop = this.text.scrollHeight;
  }

  /** Run requests one after another: each begins where the last answer ended. */
  ask(question) {
    const { opened } = this;
    return (this.asked = this.asked.then(() => opened === this.opened && question()));
  }

  /** Load a piece; whether that succeeded. */
  async load(where, ahead = false) {
    const { name, part, opened } = this;
    try {
      const data = await read("runs", this.run.run, "log", { name, part, ...where });
      if (opened !== this.opened) return false;
      put(this.note);
      this.put(data, ahead);
      return true;
    } catch (error) {
      put(this.note, failed(error));
      return false;
    }
  }

  put(data, ahead) {
    const { text } = this;
    if (!this.shown) {
      if (data.offset > this.next && this.next) this.skipped = { from: this.next, to: data.offset };
      this.pieces = [];
      text.textContent = "";
      this.shown = true;
    }
    this.size = data.bytes;
    if (data.nextOffset > data.offset) this.add(data, ahead);
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

  /** Show which part is loaded, and whether there is more. */
  tell() {
    const { from, next, size, skipped } = this;
    const missed = skipped ? Math.min(from, skipped.to) - skipped.from : 0;
    const fast = missed > 0 ? `; ${bytes(missed)} before that came too fast to be shown` : "";
    write(this.range, size === 0 ? "nothing was printed" : `${bytes(from)} to ${bytes(next)} of ${bytes(size)}${fast}`);
    this.earlier.disabled = from <= 0;
    this.later.disabled = next >= size;
  }

  /** Drop the oldest pieces beyond the limit; they can be loaded again. */
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

  /** Load more while the log is live, and then until its end. */
  async grow() {
    const more = this.log?.live || this.next < this.size;
    if (this.growing || document.hidden || !this.follow.checked || !more) return;
    this.growing = true;
    await this.ask(() => this.catchUp());
    this.growing = false;
  }

  /** Load all new text, or only its end where it is more than stays on the page. */
  async catchUp() {
    let before = -1;
    while (await this.load(this.shown ? { offset: this.next, most: MOST } : {})) {
      if (this.next === before || this.next >= this.size) return; // an incomplete character is not sent yet
      before = this.next;
      this.shown = this.size - this.next <= KEPT;
    }
  }

  close() {
    this.opened = null;
    clearInterval(this.timer);
  }
}
