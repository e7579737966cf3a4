// What was changed: by one iteration, or by the whole run.
import { read } from "./api.js";
import { failed, h, loading, put } from "./dom.js";
import { count, known, line } from "./text.js";

const LINES = 3000; // that are drawn before somebody asks for more
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
    const told = numbers.join();
    if (told === this.told && this.choice.value === (this.asked ?? "")) return;
    this.told = told;
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
      const told = await read("runs", this.run.run, "diff", { iteration: asked });
      if (asked === this.asked) put(this.place, ...patch(told));
    } catch (error) {
      put(this.place, failed(error));
    }
  }
}

function patch(told) {
  if (!told.changes.length && !told.patch) return [h("p", { class: "empty" }, "Nothing changed.")];
  const added = told.changes.reduce((sum, file) => sum + (file.addedLines ?? 0), 0);
  const removed = told.changes.reduce((sum, file) => sum + (file.removedLines ?? 0), 0);
  const sections = told.patch.split(/\n(?=diff --git )/).filter(Boolean); // ^ would match behind \r and U+2028 too
  const fits = sections.length === told.changes.length;
  let left = LINES;
  const drawn = sections.map((section, at) => {
    const lines = section.replace(/\n$/, "").split("\n");
    const shown = Math.max(0, Math.min(lines.length, left));
    left -= shown;
    return fileOf(lines, shown, fits ? told.changes[at] : null);
  });
  const cut = told.truncated
    ? h(
        "p",
        { class: "note warn" },
        "The patch is longer than is shown here; ",
        h("code", {}, `ralph diff ${told.run}`),
        " shows all of it.",
      )
    : "";
  return [
    h(
      "p",
      { class: "sums" },
      count(told.changes.length, "file"),
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
          told.changes
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
