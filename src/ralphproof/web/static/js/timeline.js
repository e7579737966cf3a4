// The iterations of a run, the newest first: what was done, what was claimed, what the checks said to it.
import { h, keyed, moment, put } from "./dom.js";
import {
  checkList,
  claimOf,
  claimPart,
  failedChecks,
  filesPart,
  notesOf,
  refused,
  turnPart,
  verdictLine,
} from "./iteration.js";
import { checkState, chip, verdictState } from "./signs.js";
import { at, cost, count, duration, line } from "./text.js";

export class Timeline {
  constructor(place, run) {
    this.run = run;
    this.list = h("ol", { class: "timeline", "aria-label": "Iterations, the newest first" });
    this.before = h("div", { class: "baseline" });
    this.empty = h("p", { class: "empty", hidden: true }, "No iteration has begun.");
    put(place, this.empty, this.list, this.before);
  }

  show(page, iterations) {
    const ordered = [...iterations.values()].sort((one, other) => other.number - one.number);
    const newest = ordered[0]?.number;
    this.empty.hidden = ordered.length > 0;
    keyed(
      this.list,
      ordered,
      (one) => one.number,
      (one, node) => {
        const card = node?.card ?? new Card(this.run);
        card.show(one);
        return card.node;
      },
    );
    for (const node of this.list.children) node.card.newest(node.card.told.number === newest);
    keyed(
      this.before,
      page.baseline?.length ? [{ checks: page.baseline }] : [],
      () => "baseline",
      (one) =>
        h("section", { class: "card" }, h("h2", {}, "Before the first iteration"), checkList(one.checks, this.run)),
    );
  }
}

/** One iteration: a line that says all that matters, and the rest behind it. */
class Card {
  constructor(run) {
    this.run = run;
    this.summary = h("summary", { "data-nav": true });
    this.body = h("div", { class: "body" });
    this.parts = Object.fromEntries(
      ["claim", "verdict", "checks", "turns", "files", "notes"].map((name) => [
        name,
        h("div", { class: `part-${name}` }),
      ]),
    );
    this.body.append(...Object.values(this.parts));
    this.details = h("details", { ontoggle: () => this.toggled() }, this.summary, this.body);
    this.node = h("li", { class: "iteration" }, this.details);
    this.node.card = this;
  }

  show(told) {
    this.told = told;
    this.node.dataset.number = told.number;
    this.node.classList.toggle("going", !told.verdict && !told.endedAt);
    this.node.classList.toggle("refused", refused(told));
    put(this.summary, ...head(told));
    if (this.details.open) this.draw();
  }

  /** The newest is open, until somebody closes it; the one before it closes again, unless somebody opened it. */
  newest(is) {
    if (is === this.isNewest) return;
    this.isNewest = is;
    if (this.touched || this.details.open === is) return;
    this.ours = true;
    this.details.open = is;
  }

  toggled() {
    if (this.ours) this.ours = false;
    else this.touched = true;
    if (this.details.open) this.draw();
  }

  draw() {
    const { told, run, parts } = this;
    const one = (place, item, build) => keyed(place, item ? [item] : [], () => "only", build);
    one(parts.claim, claimOf(told), claimPart);
    one(parts.verdict, told.verdict, verdictLine);
    one(parts.checks, told.checks?.length ? { checks: told.checks } : null, (asked) =>
      h("section", {}, h("h3", {}, "Checks"), checkList(asked.checks, run)),
    );
    keyed(
      parts.turns,
      told.turns ?? [],
      (turn) => turn.number,
      (turn) => turnPart(turn, run, told),
    );
    one(
      parts.files,
      told.endedAt || told.files?.length
        ? { files: told.files ?? [], count: told.fileCount, known: told.filesKnown, number: told.number }
        : null,
      (files) => filesPart(files, run),
    );
    one(parts.notes, notesOf(told), (notes) =>
      h(
        "ul",
        { class: "notices" },
        notes.words.map((words) => h("li", {}, line(words, 600))),
      ),
    );
  }
}

function head(told) {
  const name = nameOf(told);
  const turns = told.turns ?? [];
  const tools = turns.reduce((sum, turn) => sum + (turn.toolCalls ?? 0), 0);
  const took = told.endedAt || told.durationSeconds ? duration(told.durationSeconds) : moment(at(told.timedFrom), "since");
  const figures = [
    took,
    tools ? count(tools, "tool") : "",
    told.filesKnown === false ? "" : count(told.fileCount ?? 0, "file"),
    turns.length && told.cost.usd !== null ? cost(told.cost) : "",
  ].filter(Boolean);
  return [
    h("span", { class: "number" }, h("span", { class: "unseen" }, "Iteration "), String(told.number)),
    h(
      "span",
      { class: "name" },
      name,
      refused(told) ? chip({ tone: "bad", sign: "bang", word: "claimed, and the checks refused it" }) : "",
    ),
    h(
      "span",
      { class: "squares", role: "img", "aria-label": checksWords(told) },
      (told.checks ?? []).map((check) =>
        h("i", { class: checkState(check).tone, title: `${check.name}: ${checkState(check).word}` }),
      ),
    ),
    told.verdict
      ? chip(verdictState(told.verdict))
      : chip({
          tone: told.endedAt ? "mute" : "live",
          sign: told.endedAt ? "dash" : "dot",
          word: told.endedAt ? "not judged" : "at work",
        }),
    h(
      "span",
      { class: "figures" },
      figures.map((part, place) => [place ? " · " : "", part]),
    ),
  ];
}

/** Its stage and task, where it has such; else the agent's own last words, as a quotation. */
function nameOf(told) {
  const stage = told.stage && told.stage !== "work" ? line(told.stage, 40) : "";
  const task = told.task && told.task !== "task" ? line(told.task, 60) : "";
  const known = [stage, task, told.title && told.title !== told.task ? line(told.title, 100) : ""]
    .filter(Boolean)
    .join(" · ");
  const said = (told.turns ?? []).at(-1)?.text?.trim().split("\n")[0] ?? "";
  if (known) return h("b", {}, known);
  return said ? h("q", {}, line(said, 110)) : h("b", {}, `Iteration ${told.number}`);
}

function checksWords(told) {
  const checks = told.checks ?? [];
  if (!checks.length) return "no checks yet";
  return `${count(checks.filter((check) => check.state === "passed").length, "check")} passed, ${failedChecks(told).length} failed`;
}
