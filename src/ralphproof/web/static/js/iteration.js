// The parts of one iteration: its claim, verdict, checks, turns and files.
import { Events } from "./agent.js";
import { read } from "./api.js";
import { failed, h, keyed, loading, moment, put } from "./dom.js";
import { checkState, chip, sign, verdictState } from "./signs.js";
import { at, cost, count, duration, line, short } from "./text.js";

const FILES = 12; // listed before the user asks for all

/** Whether the agent claimed completion and a check failed. */
export function refused(iteration) {
  return iteration.claim !== null && iteration.claim !== undefined && failedChecks(iteration).length > 0;
}

export function failedChecks(iteration) {
  return (iteration.checks ?? []).filter((check) => check.state === "failed" || check.state === "errored");
}

export function claimOf(iteration) {
  const uncounted = (iteration.ignoredClaims ?? []).map((word) => line(word, 80)).join(", ");
  if (iteration.claim === null || iteration.claim === undefined) {
    return uncounted ? { tone: "mute", sign: "query", title: "A claim that does not count", words: uncounted } : null;
  }
  const claim = `“${line(iteration.claim, 200)}”`;
  const red = failedChecks(iteration).map((check) => check.name);
  if (red.length)
    return {
      tone: "bad",
      sign: "bang",
      title: "claimed, and the checks refused it",
      words: `The agent said ${claim}; ${red.slice(0, 5).join(", ")} said no.`,
    };
  if (iteration.verdict?.result === "passed")
    return { tone: "good", sign: "tick", title: "claimed, and nothing refused it", words: `The agent said ${claim}.` };
  return { tone: "info", sign: "query", title: "claimed", words: `The agent said ${claim}.` };
}

export function claimPart(claim) {
  return h(
    "div",
    { class: `claim ${claim.tone}` },
    sign(claim.sign),
    h("div", {}, h("b", {}, claim.title), h("p", {}, claim.words)),
  );
}

export function verdictLine(verdict) {
  const { label: words = "", reason: why = "" } = verdict;
  const long = why.includes("\n") || why.length > 300;
  const text = [words, long || why === words ? "" : why].filter(Boolean).join(": ");
  return h(
    "div",
    { class: "verdict" },
    chip(verdictState(verdict)),
    h("span", {}, line(text, 700)),
    long ? h("pre", { class: "why", tabindex: "0" }, why) : "",
  );
}

export function checkList(checks, run) {
  const made = h("ul", { class: "checks" });
  keyed(
    made,
    checks,
    (check) => `${check.name} ${check.log}`,
    (check) => checkItem(check, run),
  );
  return made;
}

function checkItem(check, run) {
  const figures = [
    check.durationSeconds !== null ? duration(check.durationSeconds) : "",
    check.exitCode ? `exit code ${check.exitCode}` : "",
    check.judged ? "judged by a model" : "",
    check.hidden ? "held out" : "",
    check.failedAttempts ? `flaky: ${count(check.failedAttempts, "retry", "retries")}` : "",
  ].filter(Boolean);
  const command = check.command && check.command !== check.name ? h("code", {}, line(check.command, 300)) : "";
  const failing = check.tests?.failing.length
    ? h(
        "ul",
        { class: "failing", "aria-label": "Failing tests" },
        check.tests.failing.map((name) => h("li", {}, line(name, 300))),
      )
    : "";
  const why = check.exitReason && check.exitReason !== "exit" ? h("p", { class: "why" }, line(check.exitReason, 600)) : "";
  const output = check.output ? h("pre", { tabindex: "0", "aria-label": `Output of ${check.name}` }, check.output) : "";
  const log =
    check.log && run ? h("p", {}, h("a", { href: run.address("logs", { name: check.log }) }, "whole output")) : "";
  const head = [chip(checkState(check)), h("b", {}, line(check.name, 200)), h("small", {}, figures.join(" · "))];
  if (!command && !failing && !why && !output) return h("li", {}, h("div", { class: "check" }, head, log));
  const red = check.state === "failed" || check.state === "errored";
  return h(
    "li",
    {},
    h(
      "details",
      { class: "check", open: red },
      h("summary", {}, head),
      h("div", {}, command, why, failing, output, log),
    ),
  );
}

export function turnPart(turn, run, iteration) {
  const end = turn.error
    ? `error: ${line(turn.error, 300)}`
    : turn.signal
      ? `ended by signal ${turn.signal}`
      : turn.exitCode
        ? `exit code ${turn.exitCode}`
        : turn.exitReason && turn.exitReason !== "exit"
          ? `ended: ${turn.exitReason}`
          : "";
  const took = turn.endedAt
    ? duration(turn.durationSeconds)
    : h("span", {}, "at work for ", moment(at(turn.startedAt), "since"));
  const bits = [
    [turn.agent, turn.model]
      .filter(Boolean)
      .map((word) => line(word, 60))
      .join(" "),
    took,
    turn.toolCalls ? count(turn.toolCalls, "tool") : "",
    turn.tokens !== null && turn.tokens !== undefined ? `${short(turn.tokens)} tokens` : "",
    turn.endedAt ? (turn.cost?.usd === null || !turn.cost ? "cost unknown" : cost(turn.cost)) : "",
  ].filter(Boolean);
  const bad = [
    end,
    turn.retryReason ? `taken once more: ${line(turn.retryReason, 300)}` : "",
    ...(turn.denied ?? []).map((word) => `not permitted: ${line(word, 200)}`),
    ...(turn.blockedHosts ?? []).map((word) => `blocked: ${line(word, 200)}`),
  ].filter(Boolean);
  return h(
    "section",
    { class: "turn" },
    h(
      "h3",
      {},
      (iteration.turns ?? []).length > 1 ? `Turn ${turn.number}` : "Turn",
      h(
        "small",
        {},
        bits.map((bit, place) => [place ? " · " : " ", bit]),
      ),
    ),
    bad.length
      ? h(
          "ul",
          { class: "notices" },
          bad.map((words) => h("li", {}, words)),
        )
      : "",
    turn.text ? h("blockquote", { class: "words", tabindex: "0" }, turn.text) : "",
    turn.endedAt ? activity(turn, run) : "",
  );
}

/** The events of a turn, loaded when the user opens them. */
function activity(turn, run) {
  const place = h("div", { class: "stream", tabindex: "0" });
  const made = h(
    "details",
    { class: "activity" },
    h("summary", {}, "what it did"),
    place,
    h("p", {}, h("a", { href: run.address("logs", { name: turn.log }) }, "its log")),
  );
  made.addEventListener("toggle", async () => {
    if (!made.open || made.asked) return;
    made.asked = true;
    put(place, loading("the turn"));
    try {
      const data = await read("runs", run.run, "activity", { log: turn.log });
      const events = new Events();
      data.events.forEach((event) => events.add(event));
      put(
        place,
        data.dropped ? h("p", { class: "dim" }, `${count(data.dropped, "earlier thing")} not shown`) : "",
        data.events.length ? events.list : h("p", { class: "dim" }, "Nothing that can be read."),
      );
    } catch (error) {
      put(place, failed(error));
    }
  });
  return made;
}

export function filesPart({ files, count: number, known, number: iteration }, run) {
  if (known === false)
    return h("section", {}, h("h3", {}, "Files"), h("p", { class: "dim" }, "what changed is not known"));
  if (!number) return h("section", {}, h("h3", {}, "Files"), h("p", { class: "dim" }, "nothing changed"));
  const item = (path) => h("li", {}, h("code", {}, line(path, 300)));
  const rest = files.slice(FILES);
  return h(
    "section",
    {},
    h(
      "h3",
      {},
      count(number, "file"),
      h("small", {}, " ", h("a", { href: run.address("diff", { iteration }) }, "diff")),
    ),
    h("ul", { class: "files" }, files.slice(0, FILES).map(item)),
    rest.length
      ? h(
          "details",
          {},
          h("summary", {}, `${number - FILES} more`),
          h(
            "ul",
            { class: "files" },
            rest.map(item),
            number > files.length ? h("li", {}, `and ${number - files.length} more`) : "",
          ),
        )
      : "",
  );
}

export function notesOf(iteration) {
  const words = [...(iteration.findings ?? []).map((one) => one.message), ...(iteration.notices ?? [])];
  if (iteration.scm)
    words.push(
      iteration.scm.error
        ? `commit failed: ${iteration.scm.error}`
        : `committed ${String(iteration.scm.commit ?? "").slice(0, 12)}: ${iteration.scm.message}`,
    );
  if (iteration.snapshot) words.push(`saved as ${iteration.snapshot}`);
  return words.length ? { words } : null;
}
