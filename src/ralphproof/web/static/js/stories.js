// The stories of a run, in lanes.
import { read } from "./api.js";
import { failed, h, keyed, put } from "./dom.js";
import { cost, count, known, line } from "./text.js";

const NAMES = {
  open: "Open",
  needs_review: "Needs review",
  changes_requested: "Changes requested",
  approved: "Approved",
};

export class Stories {
  constructor(place, run) {
    this.run = run;
    this.lanes = h("div", { class: "lanes" });
    this.note = h("div");
    put(place, this.note, this.lanes);
  }

  async show(page) {
    if (page.seq === this.seq) return;
    this.seq = page.seq;
    try {
      const data = await read("runs", this.run.run, "stories");
      put(this.note);
      keyed(
        this.lanes,
        data.lanes,
        (lane) => lane.name,
        (lane) => lanePart(known(NAMES, lane.name) ?? lane.name, lane.stories.map(story)),
      );
    } catch (error) {
      put(this.note, failed(error));
    }
  }
}

/** A lane with its cards. */
export function lanePart(name, cards) {
  return h(
    "section",
    { class: "lane", "aria-label": name },
    h("h2", {}, name, h("small", {}, ` ${cards.length}`)),
    cards.length
      ? h(
          "ul",
          {},
          cards.map((card) => h("li", {}, card)),
        )
      : h("p", { class: "dim" }, "none"),
  );
}

function story(data) {
  const found = data.findings?.length
    ? h(
        "details",
        {},
        h("summary", {}, count(data.findings.length, "finding")),
        h(
          "ul",
          { class: "notices" },
          data.findings.map((one) => h("li", {}, line(one.message, 600))),
        ),
      )
    : "";
  const facts = [
    data.status.replaceAll("_", " "),
    count(data.reviewCount ?? 0, "review"),
    count(data.iterations ?? 0, "iteration"),
    ...(data.cost ? [`cost ${cost(data.cost)}`] : []),
  ];
  const capped = data.cappedApproval ? h("p", { class: "warn" }, "approved at the review cap") : "";
  return h(
    "article",
    { class: "ticket" },
    h("h3", {}, h("code", {}, line(data.id, 60)), " ", line(data.title, 160)),
    h("p", { class: "dim" }, facts.join(" · ")),
    capped,
    part(
      count(data.criteria?.length ?? 0, "criterion", "criteria"),
      (data.criteria ?? []).map((one) => one.text),
    ),
    found,
    part("Verification", (data.timeline ?? []).map(verified).reverse()),
  );
}

/** Details with a list of lines; nothing where there are none. */
function part(name, lines) {
  if (!lines.length) return "";
  return h(
    "details",
    {},
    h("summary", {}, name),
    h(
      "ul",
      { class: "notices" },
      lines.map((words) => h("li", {}, line(words, 600))),
    ),
  );
}

function verified(one) {
  const checks = one.checks.map((check) => `${check.command || check.name} ${check.state}`);
  return `iteration ${one.number}, ${one.stage}: ${[one.verdict?.label ?? "not judged", ...checks].join("; ")}`;
}
