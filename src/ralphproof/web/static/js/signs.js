// Signs and chips of states: a drawn sign, a word and a colour, never a colour alone.
import { h, svg } from "./dom.js";
import { count, known } from "./text.js";

const PATHS = {
  tick: "M3 8.5l3.2 3.2L13 4.8",
  cross: "M4 4l8 8M12 4l-8 8",
  dot: "M8 8h.01",
  bars: "M5.5 4v8M10.5 4v8",
  bang: "M8 3v6M8 12.5h.01",
  query: "M5.5 6a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.8-1.1 1.6M8 12.7h.01",
  ring: "M8 3.2a4.8 4.8 0 1 1 0 9.6a4.8 4.8 0 1 1 0-9.6",
  dash: "M4 8h8",
  scales: "M8 3v10M4 5.5h8M4 5.5l-1.5 4h3zM12 5.5l-1.5 4h3z",
  shield: "M8 2.5l4.5 1.6v3.7c0 2.8-1.9 4.8-4.5 5.7c-2.6-.9-4.5-2.9-4.5-5.7V4.1z",
};

export function sign(name) {
  const width = name === "dot" ? 6 : 2;
  const path = svg("path", { d: PATHS[name], "stroke-width": width });
  return svg(
    "svg",
    { viewBox: "0 0 16 16", width: 13, height: 13, class: `sign ${name}`, "aria-hidden": "true" },
    path,
  );
}

/** A state as a chip: {tone, sign, word}. */
export function chip(look, more = "") {
  return h("span", { class: `chip ${look.tone} ${more}`.trim() }, sign(look.sign), h("span", {}, look.word));
}

const STATES = {
  paused: { tone: "warn", sign: "bars", word: "paused" },
  stopped: { tone: "warn", sign: "query", word: "waits for you" },
  orphaned: { tone: "bad", sign: "bang", word: "orphaned" },
  crashed: { tone: "bad", sign: "bang", word: "crashed" },
};
const PROOFS = {
  verified: { tone: "good", sign: "tick", word: "verified" },
  judged: { tone: "info", sign: "scales", word: "judged" },
  claimed: { tone: "warn", sign: "query", word: "claimed only" },
};

/** The state of a run as a chip, in at most three words. */
export function stateOf(run) {
  if (run.state === "running") {
    if (run.requested === "cancel") return { tone: "warn", sign: "dot", word: "ending" };
    return { tone: "live", sign: "dot", word: run.requested === "pause" ? "about to rest" : "running" };
  }
  if (run.state !== "ended") return known(STATES, run.state) ?? { tone: "mute", sign: "query", word: run.state };
  if (run.status === "COMPLETED") return known(PROOFS, run.proof) ?? { tone: "good", sign: "tick", word: "completed" };
  if (run.status === "ERROR") return { tone: "bad", sign: "bang", word: "error" };
  if (run.reason === "CANCELLED") return { tone: "mute", sign: "dash", word: "cancelled" };
  if (run.reason === "INTERRUPTED") return { tone: "mute", sign: "dash", word: "interrupted" };
  return { tone: "bad", sign: "cross", word: "aborted" };
}

/** The reason of that state, if any. */
export function reasonOf(run) {
  if (run.state !== "ended" && run.state !== "stopped") return "";
  if (run.status === "COMPLETED") return run.concernCount ? count(run.concernCount, "concern") : "";
  if (!run.reason || ["CANCELLED", "INTERRUPTED", "WAITING"].includes(run.reason)) return "";
  return run.reason.toLowerCase().replaceAll("_", " ");
}

const CHECKS = {
  running: { tone: "live", sign: "dot", word: "running" },
  passed: { tone: "good", sign: "tick", word: "passed" },
  failed: { tone: "bad", sign: "cross", word: "failed" },
  errored: { tone: "bad", sign: "bang", word: "errored" },
  advisory: { tone: "warn", sign: "bang", word: "failed, only warns" },
  stopped: { tone: "mute", sign: "dash", word: "stopped" },
};

export function checkState(check) {
  return known(CHECKS, check.state) ?? { tone: "mute", sign: "query", word: check.state };
}

const VERDICTS = {
  passed: { tone: "good", sign: "tick", word: "passed" },
  retry: { tone: "bad", sign: "cross", word: "once more" },
  sentBack: { tone: "warn", sign: "dash", word: "sent back" },
  waiting: { tone: "warn", sign: "query", word: "waits" },
  stopped: { tone: "bad", sign: "bang", word: "stopped" },
};

export function verdictState(verdict) {
  return known(VERDICTS, verdict.result) ?? { tone: "mute", sign: "query", word: verdict.result };
}

const STRENGTHS = { strong: "good", partial: "warn", none: "mute" };

export function sandboxChip(sandbox) {
  if (!sandbox) return h("span", { class: "dim" }, "unknown");
  const word = sandbox.strength === "none" ? "no sandbox" : `${sandbox.name}, ${sandbox.strength}`;
  return chip(
    { tone: known(STRENGTHS, sandbox.strength) ?? "mute", sign: sandbox.strength === "none" ? "dash" : "shield", word },
    "bare",
  );
}

const TASKS = {
  todo: { tone: "mute", sign: "ring", word: "to do" },
  working: { tone: "live", sign: "dot", word: "working" },
  waiting: { tone: "warn", sign: "query", word: "waits for you" },
  failed: { tone: "bad", sign: "cross", word: "failed" },
  cancelled: { tone: "mute", sign: "dash", word: "cancelled" },
};

export function taskState(task) {
  if (task.status === "done") return known(PROOFS, task.proof) ?? { tone: "good", sign: "tick", word: "done" };
  return known(TASKS, task.status) ?? { tone: "mute", sign: "query", word: task.status };
}

/** The numbers of passed and failed checks. */
export function checksFigure(checks, over) {
  if (!checks) return h("span", { class: "dim" }, over ? "–" : "none yet");
  const part = (tone, name, number, word) =>
    h(
      "span",
      { class: `tally ${number ? tone : "dim"}` },
      sign(name),
      String(number),
      h("span", { class: "unseen" }, ` ${word} `),
    );
  return h(
    "span",
    { class: "tallies" },
    part("good", "tick", checks.passedCount, "passed"),
    part("bad", "cross", checks.failedCount, "failed"),
  );
}

/** A used share of a limit as a bar. */
export function bar(used, most, label, text, tone = "") {
  const share = most ? Math.min(1, Math.max(0, (used ?? 0) / most)) : 0;
  const fill = h("i", {});
  fill.style.width = `${(share * 100).toFixed(1)}%`;
  const look = tone || (share >= 1 ? "full" : share >= 0.8 ? "near" : "");
  return h(
    "span",
    {
      class: `bar ${look}`,
      role: "meter",
      "aria-label": label,
      "aria-valuemin": "0",
      "aria-valuemax": String(most ?? 0),
      "aria-valuenow": String(Math.min(used ?? 0, most ?? 0)),
      "aria-valuetext": text,
    },
    fill,
  );
}
