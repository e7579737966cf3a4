// The diff of one iteration, or of the whole run.
import { read } from "./api.js";
import { failed, h, loading, put } from "./dom.js";
import { count, known, line } from "./text.js";

const LINES = 3000; // drawn before the user asks for more
const TONES = { "+": "add", "-": "del", "@": "hunk", "\\": "dim" };

export class Diff {
  constructor(place, run) {
    this.run = run;
    this.asked = null;
    this.choice = h("select", {
      id: "which",
      onchange: () => (location.hash = run.address("diff", this.choice.value ? { iteration: this.choice.value } : {})),
    });
    this.place = h("div", { class: "diff" });
    this.again = h("button", { type: "button", onclick: () => this.load() }, "Read again");
    put(
      place,
      h("p", { class: "tools" }, h("label", { for: "which" }, "What changed in "), this.choice, this.again),
      this.place,
    );
  }

  turn(asked) {
    const iteration = asked.get("iteration");
    if (this.loaded && iteration === this.asked) return;
    this.loaded = true;
    this.asked = iteration;
    this.load();
  }

  show(page, iterations) {
    const numbers = [...iterations.keys()].sort((one, other) => one - other);
    const shown = numbers.join();
    if (shown === this.shown && this.choice.value === (this.asked ?? "")) return;
    this.shown = shown;
    put(
      this.choice,
      h("option", { value: "" }, "the whole run"),
      numbers.map((number) => h("option", { value: number }, `iteration ${number}`)),
    );
    this.choice.value = this.asked ?? "";
  }

  async load() {
    const { asked } = this;
    put(this.place, loading("the changes"));
    try {
      const data = await read("runs", this.run.run, "diff", { iteration: asked });
      if (asked === this.asked) put(this.place, ...patch(data));
    } catch (error) {
      put(this.place, failed(error));
    }
  }
}

function patch(data) {
  if (!data.changes.length && !data.patch) return [h("p", { class: "empty" }, "Nothing changed.")];
  const added = data.changes.reduce((sum, file) => sum + (file.addedLines ?? 0), 0);
  const removed = data.changes.reduce((sum, file) => sum + (file.removedLines ?? 0), 0);
  const sections = data.patch.split(/\n(?=diff --git )/).filter(Boolean); // ^ would match behind \r and U+2028 too
  const fits = sections.length === data.changes.length;
  let left = LINES;
  const drawn = sections.map((section, at) => {
    const lines = section.replace(/\n$/, "").split("\n");
    const shown = Math.max(0, Math.min(lines.length, left));
    left -= shown;
    return fileOf(lines, shown, fits ? data.changes[at] : null);
  });
  const cut = data.truncated
    ? h(
        "p",
        { class: "note warn" },
        "The patch is longer than is shown here; ",
        h("code", {}, `ralph diff ${data.run}`),
        " shows all of it.",
      )
    : "";
  return [
    h(
      "p",
      { class: "sums" },
      count(data.changes.length, "file"),
      ", ",
      h("span", { class: "good" }, `+${added}`),
      " ",
      h("span", { class: "bad" }, `−${removed}`),
    ),
    fits
      ? ""
      : h(
          "ul",
          { class: "files" },
          data.changes
            .slice(0, 200)
            .map((file) =>
              h("li", {}, h("code", {}, line(file.path, 300)), ` +${file.addedLines ?? "?"} −${file.removedLines ?? "?"}`),
            ),
        ),
    cut,
    ...drawn,
  ];
}

function fileOf(lines, shown, file) {
  const name = file ? line(file.path, 300) : line(lines[0].replace(/^diff --git /, ""), 300);
  const figures = file
    ? file.binary
      ? "binary"
      : h(
          "span",
          {},
          h("span", { class: "good" }, `+${file.addedLines}`),
          " ",
          h("span", { class: "bad" }, `−${file.removedLines}`),
        )
    : "";
  const first = Math.max(
    0,
    lines.findIndex((one) => one.startsWith("@@")),
  );
  const body = h(
    "div",
    { class: "lines", tabindex: "0", role: "region", "aria-label": `Changes of ${name}` },
    rows(lines, first, Math.max(first, shown)),
  );
  const more = lines.length - Math.max(first, shown);
  const button =
    more > 0
      ? h(
          "button",
          {
            type: "button",
            onclick: () => {
              button.remove();
              body.append(...rows(lines, Math.max(first, shown), lines.length));
            },
          },
          `${count(more, "more line")}`,
        )
      : "";
  return h(
    "details",
    { class: "file", open: shown > 0 },
    h("summary", { "data-nav": true }, h("code", {}, name), figures),
    body,
    button,
  );
}

function rows(lines, from, to) {
  return lines
    .slice(from, to)
    .map((one) =>
      h("div", { class: known(TONES, one[0]) ?? "" }, one.length > 5000 ? `${one.slice(0, 5000)}…` : one || " "),
    );
}
