// `#/`: the live list of all runs, newest first.
import { read } from "./api.js";
import { announce, arrange, failed, h, moment, put, write } from "./dom.js";
import { inFrame } from "./deferred.js";
import { Feed } from "./live.js";
import { bar, checksFigure, chip, reasonOf, sandboxChip, stateOf } from "./signs.js";
import { at, cost, count, dollars, line, withChildren } from "./text.js";

const PAGE = 100;

export class Runs {
  constructor(main, app) {
    this.app = app;
    this.lines = new Map();
    this.rows = new Map();
    this.total = 0;
    this.oldest = undefined;
    this.filter = h("input", {
      type: "search",
      id: "filter",
      placeholder: "Filter",
      "aria-label": "Filter runs",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.arrange(),
    });
    this.sums = h("p", { class: "sums" });
    this.body = h("tbody", { role: "rowgroup" });
    this.note = h("p", { class: "empty" }, "Reading the runs …");
    this.older = h("button", { type: "button", hidden: true, onclick: () => this.more() }, "Older runs");
    put(
      main,
      h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Runs"), this.sums, this.filter),
      h("table", { class: "runs", role: "table" }, heading(), this.body),
      this.note,
      h("p", { class: "more" }, this.older),
    );
    this.feed = new Feed(() => "/api/events", { runs: (data) => this.hear(data), tasks: () => {} });
  }

  get title() {
    return "Runs";
  }

  hear(data) {
    this.total = data.total ?? this.total;
    if (data.complete) this.begin(data);
    for (const run of data.runs) this.take(run, true);
    this.plan();
  }

  /** The first message of a stream has the whole list; other runs are gone, or belong to another project. */
  begin(data) {
    this.app.named(data.project);
    this.oldest = data.runs.at(-1)?.id;
    const there = new Set(data.runs.map((run) => run.id));
    for (const run of this.lines.keys()) {
      if (there.has(run)) continue;
      this.lines.delete(run);
      this.rows.delete(run);
    }
  }

  take(run, live) {
    const before = this.lines.get(run.id);
    if (live && before && stateOf(before).word !== stateOf(run).word) {
      announce(`${line(run.title, 80)}: ${stateOf(run).word} ${reasonOf(run)}`);
    }
    this.lines.set(run.id, run);
    const row = this.rows.get(run.id);
    if (row) row.show(run);
    else this.rows.set(run.id, new Row(run));
  }

  /** Draw at most once a frame. */
  plan() {
    this.frame ??= inFrame(() => {
      this.frame = null;
      this.arrange();
    });
  }

  arrange() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = ordered(this.lines).filter(({ run }) => words.every((word) => haystack(run).includes(word)));
    for (const { run, depth } of shown) this.rows.get(run.id).indent(depth, this.lines.has(run.parent));
    arrange(
      this.body,
      shown.map(({ run }) => this.rows.get(run.id).node),
    );
    this.older.hidden = this.lines.size >= this.total || words.length > 0;
    this.note.hidden = shown.length > 0;
    write(
      this.note,
      this.lines.size ? "No run matches the filter." : 'No run yet. Begin one: ralph run -p "…" --check "make test"',
    );
    this.sum(shown.length, words.length > 0);
  }

  sum(shown, filtered) {
    const all = [...this.lines.values()];
    const of = (test) => all.filter(test).length;
    const parts = [
      [of((run) => run.state === "running"), "running"],
      [of((run) => run.state === "paused"), "paused"],
      [of((run) => ["stopped", "orphaned", "crashed"].includes(run.state)), "for you to look at"],
    ].filter(([number]) => number);
    const sums = [
      `${filtered ? `${shown} of ` : ""}${count(this.total, "run")}`,
      ...parts.map((part) => part.join(" ")),
    ];
    write(this.sums, sums.join(" · "));
  }

  /** Load the runs before the last listed one, in the order of the server. */
  async more() {
    this.older.disabled = true;
    try {
      const data = await read("runs", { limit: PAGE, before: this.oldest });
      this.total = data.total;
      this.oldest = data.runs.at(-1)?.id ?? this.oldest;
      for (const run of data.runs) if (!this.lines.has(run.id)) this.take(run, false);
    } catch (error) {
      this.older.after(failed(error));
    }
    this.older.disabled = false;
    this.arrange();
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.feed.close();
  }
}

function heading() {
  const names = ["State", "Run", "Iterations", "Checks", "Spend", "Sandbox", "Last change"];
  return h(
    "thead",
    { role: "rowgroup" },
    h(
      "tr",
      { role: "row" },
      names.map((name) => h("th", { scope: "col", role: "columnheader" }, name)),
    ),
  );
}

/** Runs, newest first, with child runs below their parents. */
function ordered(lines) {
  const below = new Map();
  const first = [];
  for (const run of [...lines.values()].sort(
    (one, other) => at(other.startedAt) - at(one.startedAt) || (other.id > one.id ? 1 : -1),
  )) {
    if (run.parent && run.parent !== run.id && lines.has(run.parent))
      below.set(run.parent, [...(below.get(run.parent) ?? []), run]);
    else first.push(run);
  }
  const rows = [];
  const seen = new Set();
  const walk = (run, depth) => {
    if (seen.has(run.id)) return;
    seen.add(run.id);
    rows.push({ run, depth });
    for (const child of below.get(run.id) ?? []) walk(child, Math.min(depth + 1, 4));
  };
  first.forEach((run) => walk(run, 0));
  return rows;
}

function haystack(run) {
  const parts = [
    run.id,
    run.title,
    run.agent,
    run.model,
    run.preset,
    run.task,
    run.state,
    run.reason,
    run.status,
    stateOf(run).word,
  ];
  return parts.filter(Boolean).join(" ").toLowerCase();
}

class Row {
  constructor(run) {
    this.node = h("tr", { role: "row" });
    this.child = h("span", { class: "child" });
    this.show(run);
  }

  show(run) {
    const shown = JSON.stringify(run);
    if (shown === this.shown) return;
    this.shown = shown;
    this.run = run;
    const focused = this.node.contains(document.activeElement);
    put(this.node, ...this.cells(run));
    if (focused) this.node.querySelector("a").focus({ preventScroll: true });
  }

  cells(run) {
    const cell = (label, ...content) => h("td", { role: "cell", "data-label": label }, h("div", {}, content));
    const about = [run.agent, run.model, run.preset, run.task && `task ${run.task}`]
      .filter(Boolean)
      .map((word) => line(word, 40));
    const most = run.maximumIterations;
    const counted = run.costWithChildren ?? run.cost;
    const iterations = most ? `${run.iterations} of ${most}` : String(run.iterations);
    return [
      cell("State", chip(stateOf(run)), h("span", { class: "why" }, reasonOf(run))),
      h(
        "th",
        { scope: "row", role: "rowheader", class: "what" },
        h(
          "a",
          { href: `#/run/${encodeURIComponent(run.id)}`, "data-nav": true },
          line(run.title, 160) || "(no title)",
        ),
        h(
          "span",
          { class: "about" },
          this.child,
          h("code", {}, run.id),
          about.length ? ` · ${about.join(" · ")}` : "",
        ),
        run.activity && run.state !== "ended" ? h("span", { class: "doing" }, line(run.activity, 120)) : "",
      ),
      cell(
        "Iterations",
        h("span", { class: "figure" }, iterations),
        most ? bar(run.iterations, most, "Iterations", iterations, "plain") : "",
      ),
      cell("Checks", checksFigure(run.checkCounts, run.state === "ended")),
      cell(
        "Spend",
        h("span", { class: "figure" }, `${cost(run.cost)}${withChildren(run)}`),
        run.maxCostUsd
          ? bar(
              counted?.usd,
              run.maxCostUsd,
              "Cost",
              `${cost(counted)} of ${dollars(run.maxCostUsd)}`,
            )
          : "",
      ),
      cell("Sandbox", sandboxChip(run.sandbox)),
      cell("Last change", moment(at(run.updatedAt))),
    ];
  }

  /** A child run is marked, and indented below its parent. */
  indent(depth, near) {
    this.node.className = depth ? `depth depth-${depth}` : "";
    const { parent, childCount } = this.run;
    const marks = [
      parent && (near ? "begun by the run above · " : `begun by ${parent} · `),
      childCount ? `began ${count(childCount, "run")} · ` : "",
    ];
    write(this.child, marks.filter(Boolean).join(""));
  }
}
