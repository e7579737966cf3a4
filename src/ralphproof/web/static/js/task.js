// One task: its specification, and all its verifications.
import { h, moment, put } from "./dom.js";
import { listed } from "./facts.js";
import { checkState, chip, reasonOf, sign, stateOf, taskState } from "./signs.js";
import { at, cost, count, line } from "./text.js";

export function detail(task) {
  const done = task.completion ?? {};
  const run = task.run ? h("a", { href: `#/run/${encodeURIComponent(task.run)}` }, "its last run") : "";
  const bits = [
    chip(taskState(task)),
    task.reason ? h("span", {}, line(task.reason, 300)) : "",
    task.specId ? `spec ${task.specId}` : "",
    `priority ${task.priority}`,
    task.stage ? `${task.stage} ${task.stageIterations}` : "",
    task.iterations ? count(task.iterations, "iteration") : "",
    task.cost ? `cost ${cost(task.cost)}` : "",
    run,
  ].filter(Boolean);
  return [
    h(
      "p",
      { class: "about" },
      bits.map((bit) => h("span", { class: "bit" }, bit)),
    ),
    task.description ? h("pre", { class: "description" }, task.description) : "",
    task.completionProblem ? h("p", { class: "note bad" }, task.completionProblem) : "",
    h(
      "div",
      { class: "columns even" },
      h(
        "div",
        {},
        done.outcome ? h("section", { class: "card" }, h("h2", {}, "Outcome"), h("p", {}, done.outcome)) : "",
        acceptance(task),
        stages(done),
        task.dependsOn?.length
          ? h(
              "section",
              { class: "card" },
              h("h2", {}, "Depends on"),
              h(
                "ul",
                {},
                task.dependsOn.map((one) =>
                  h(
                    "li",
                    {},
                    h("a", { href: `#/tasks/${encodeURIComponent(one.task)}` }, line(one.task, 60)),
                    ` ${one.status ?? "there is none"}`,
                  ),
                ),
              ),
            )
          : "",
      ),
      h("div", {}, history(task)),
    ),
  ];
}

function acceptance(task) {
  const looks = {
    true: ["good", "tick", "met"],
    false: ["bad", "cross", "not met"],
    null: ["dim", "query", "nobody has judged it"],
  };
  const item = (one) => {
    const [tone, name, word] = looks[String(one.met)] ?? looks.null;
    return h(
      "li",
      { class: tone },
      sign(name),
      h(
        "div",
        {},
        h("span", { class: "criterion" }, one.text),
        h("small", {}, `${word}${one.reason ? `: ${line(one.reason, 300)}` : ""}`),
      ),
    );
  };
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "Acceptance criteria"),
    task.criteria?.length
      ? h("ul", { class: "acceptance" }, task.criteria.map(item))
      : h("p", { class: "dim" }, "none"),
  );
}

function stages(done) {
  const known = ["coder", "reviewer", "tester", "qa"].filter((name) => done[name] && typeof done[name] === "object");
  if (!known.length) return "";
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "What it asks of each stage"),
    known.map((name) => h("details", { "data-key": name }, h("summary", {}, name), listed(done[name]))),
  );
}

/** The feedback of a reviewer that sent the work back: the last message of its turn. */
function feedback(passage) {
  const place = h("blockquote", { class: "words", "aria-label": "Review feedback" }, "Review feedback: …");
  put(place, passage.turns.at(-1)?.text || "Nothing was said.");
  return place;
}

/** What a judge said, or how a command ended. */
function why(check) {
  if (check.exitReason && check.exitReason !== "exit") return check.exitReason;
  return check.judged || check.exitCode === null ? check.output : `exit code ${check.exitCode}`;
}

/** All verifications by run, with those that sent the work back marked. */
function history(task) {
  const passages = [...(task.timeline ?? [])].reverse();
    const item = (one) => {
    const back = one.verdict?.result === "sentBack";
    const checks = h(
      "ul",
      { class: "checks" },
      one.checks.map((check) =>
        h(
          "li",
          {},
          chip(checkState(check)),
          " ",
          h("b", {}, line(check.command || check.name, 200)),
          h("small", {}, [check.judged ? "judged by a model" : "a machine's answer"].join(" · ")),
          check.judged || !check.passed ? h("p", { class: "why" }, line(why(check), 500)) : "",
        ),
      ),
    );
    return h(
      "li",
      { class: back ? "back" : "" },
      h(
        "p",
        {},
        h("b", {}, one.number ? `Iteration ${one.number}` : "Before the first"),
        one.stage ? ` · ${one.stage}` : "",
        " · ",
        moment(at(one.endedAt ?? one.startedAt)),
        " · ",
        h("a", { href: `#/run/${encodeURIComponent(one.run)}` }, one.run),
      ),
      one.verdict ? h("p", { class: back ? "warn" : "dim" }, line(one.verdict.label, 600)) : "",
      back ? feedback(one) : "",
      one.checks.length ? checks : "",
    );
  };
  const runs = [...(task.runs ?? [])]
    .reverse()
    .map((one) =>
      h(
        "li",
        {},
        h("a", { href: `#/run/${encodeURIComponent(one.id)}` }, one.id),
        " ",
        moment(at(one.startedAt)),
        " ",
        h("small", {}, line([stateOf(one).word, reasonOf(one)].filter(Boolean).join(", "), 200)),
      ),
    );
  return [
    runs.length ? h("section", { class: "card" }, h("h2", {}, "Runs"), h("ul", { class: "plainlist" }, runs)) : "",
    h(
      "section",
      { class: "card" },
      h("h2", {}, "Verifications"),
      passages.length
        ? h("ol", { class: "passages" }, passages.map(item))
        : h("p", { class: "dim" }, "Nothing has been verified yet."),
    ),
  ];
}
