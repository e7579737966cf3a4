// One task: what it asks for, and every verification of it.
import { read } from "./api.js";
import { h, moment, put } from "./dom.js";
import { listed } from "./facts.js";
import { checkState, chip, sign, taskState } from "./signs.js";
import { cost, count, line } from "./text.js";

export function detail(task) {
  const done = task.completion ?? {};
  const run = task.run ? h("a", { href: `#/run/${encodeURIComponent(task.run)}` }, "its last run") : "";
  const bits = [
    chip(taskState(task)),
    task.reason ? h("span", {}, line(task.reason, 300)) : "",
    task.specId ? `spec ${task.specId}` : "",
    `priority ${task.priority}`,
    task.stage ? `${task.stage.name} ${task.stage.iteration}` : "",
    task.iteration ? count(task.iteration, "iteration") : "",
    task.spend ? `cost ${cost(task.spend)}` : "",
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
                    h("a", { href: `#/tasks/${encodeURIComponent(one.id)}` }, line(one.id, 60)),
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
        h("span", { class: "criterion" }, one.criterion),
        h("small", {}, `${word}${one.why ? `: ${line(one.why, 300)}` : ""}`),
      ),
    );
  };
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "Acceptance criteria"),
    task.acceptance?.length
      ? h("ul", { class: "acceptance" }, task.acceptance.map(item))
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

/** What a reviewer said when it sent the work back: the last words of that turn. */
function feedback(passage) {
  const place = h("blockquote", { class: "words", "aria-label": "Review feedback" }, "Review feedback: …");
  const said = (page) => page.iterations.find((one) => one.number === passage.iteration)?.turns.at(-1)?.text;
  read("runs", passage.run).then(
    (page) => put(place, said(page) || "Nothing was said."),
    (error) => put(place, error.message),
  );
  return place;
}

/** Every verification, by run; where a later stage sent it back, that is told. */
function history(task) {
  const passages = [...(task.verification ?? [])].reverse();
  const ends = new Map((task.runs ?? []).map((one) => [one.run, one]));
  const item = (one) => {
    const back = one.verdict === "sentBack";
    const checks = h(
      "ul",
      { class: "checks" },
      one.checks.map((check) =>
        h(
          "li",
          {},
          chip(checkState({ state: check.result })),
          " ",
          h("b", {}, line(check.command || check.check, 200)),
          h("small", {}, [check.judged ? "judged by a model" : "a machine's answer"].join(" · ")),
          check.why && (check.judged || !check.passed) ? h("p", { class: "why" }, line(check.why, 500)) : "",
        ),
      ),
    );
    return h(
      "li",
      { class: back ? "back" : "" },
      h(
        "p",
        {},
        h("b", {}, one.iteration ? `Iteration ${one.iteration}` : "Before the first"),
        one.stage ? ` · ${one.stage}` : "",
        " · ",
        moment(one.at),
        " · ",
        h("a", { href: `#/run/${encodeURIComponent(one.run)}` }, one.run),
      ),
      one.verdictWords ? h("p", { class: back ? "warn" : "dim" }, line(one.verdictWords, 600)) : "",
      back ? feedback(one) : "",
      one.checks.length ? checks : "",
    );
  };
  const runs = [...ends.values()]
    .reverse()
    .map((one) =>
      h(
        "li",
        {},
        h("a", { href: `#/run/${encodeURIComponent(one.run)}` }, one.run),
        " ",
        moment(one.beganAt),
        " ",
        h("small", {}, line(one.end, 200)),
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
