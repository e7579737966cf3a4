// The iterations of a run, newest first: work, claims and checks.
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
    for (const node of this.list.children) node.card.newest(node.card.iteration.number === newest);
    keyed(
      this.before,
      page.baseline?.length ? [{ checks: page.baseline }] : [],
      () => "baseline",
      (one) =>
        h("section", { class: "card" }, h("h2", {}, "Before the first iteration"), checkList(one.checks, this.run)),
    );
  }
}

/** One iteration: a summary line, and details behind it. */
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

  show(iteration) {
    this.iteration = iteration;
    this.node.dataset.number = iteration.number;
    this.node.classList.toggle("going", !iteration.verdict && !iteration.endedAt);
    this.node.classList.toggle("refused", refused(iteration));
    put(this.summary, ...head(iteration));
    if (this.details.open) this.draw();
  }

  /** Open the newest iteration and close the one before, unless the user opened or closed it. */
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
    const { iteration, run, parts } = this;
    const one = (place, item, build) => keyed(place, item ? [item] : [], () => "only", build);
    one(parts.claim, claimOf(iteration), claimPart);
    one(parts.verdict, iteration.verdict, verdictLine);
    one(parts.checks, iteration.checks?.length ? { checks: iteration.checks } : null, (asked) =>
      h("section", {}, h("h3", {}, "Checks"), checkList(asked.checks, run)),
    );
    keyed(
      parts.turns,
      iteration.turns ?? [],
      (turn) => turn.number,
      (turn) => turnPart(turn, run, iteration),
    );
    one(
      parts.files,
      iteration.endedAt || iteration.files?.length
        ? {
            files: iteration.files ?? [],
            count: iteration.fileCount,
            known: iteration.filesKnown,
            number: iteration.number,
          }
        : null,
      (files) => filesPart(files, run),
    );
    one(parts.notes, notesOf(iteration), (notes) =>
      h(
        "ul",
        { class: "notices" },
        notes.words.map((words) => h("li", {}, line(words, 600))),
      ),
    );
  }
}

function head(iteration) {
  const name = nameOf(iteration);
  const turns = iteration.turns ?? [];
  const tools = turns.reduce((sum, turn) => sum + (turn.toolCalls ?? 0), 0);
  const ended = iteration.endedAt || iteration.durationSeconds;
  const took = ended ? duration(iteration.durationSeconds) : moment(at(iteration.timedFrom), "since");
  const figures = [
    took,
    tools ? count(tools, "tool") : "",
    iteration.filesKnown === false ? "" : count(iteration.fileCount ?? 0, "file"),
    turns.length && iteration.cost.usd !== null ? cost(iteration.cost) : "",
  ].filter(Boolean);
  return [
    h("span", { class: "number" }, h("span", { class: "unseen" }, "Iteration "), String(iteration.number)),
    h(
      "span",
      { class: "name" },
      name,
      refused(iteration) ? chip({ tone: "bad", sign: "bang", word: "claimed, and the checks refused it" }) : "",
    ),
    h(
      "span",
      { class: "squares", role: "img", "aria-label": checksWords(iteration) },
      (iteration.checks ?? []).map((check) =>
        h("i", { class: checkState(check).tone, title: `${check.name}: ${checkState(check).word}` }),
      ),
    ),
    iteration.verdict
      ? chip(verdictState(iteration.verdict))
      : chip({
          tone: iteration.endedAt ? "mute" : "live",
          sign: iteration.endedAt ? "dash" : "dot",
          word: iteration.endedAt ? "not judged" : "at work",
        }),
    h(
      "span",
      { class: "figures" },
      figures.map((part, place) => [place ? " · " : "", part]),
    ),
  ];
}

/** The stage and the task, if any; else a quotation of the agent's last message. */
function nameOf(iteration) {
  const stage = iteration.stage && iteration.stage !== "work" ? line(iteration.stage, 40) : "";
  const task = iteration.task && iteration.task !== "task" ? line(iteration.task, 60) : "";
  const known = [stage, task, iteration.title && iteration.title !== iteration.task ? line(iteration.title, 100) : ""]
    .filter(Boolean)
    .join(" · ");
  const said = (iteration.turns ?? []).at(-1)?.text?.trim().split("\n")[0] ?? "";
  if (known) return h("b", {}, known);
  return said ? h("q", {}, line(said, 110)) : h("b", {}, `Iteration ${iteration.number}`);
}

function checksWords(iteration) {
  const checks = iteration.checks ?? [];
  if (!checks.length) return "no checks yet";
  const passed = checks.filter((check) => check.state === "passed").length;
  return `${count(passed, "check")} passed, ${failedChecks(iteration).length} failed`;
}
