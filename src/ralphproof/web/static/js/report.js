// `#/report`: the statistics of runs in a range of days, as charts and tables.
import { read } from "./api.js";
import { failed, h, loading, put } from "./dom.js";
import { Plots } from "./plots.js";
import { count, dollars, duration, line, short } from "./text.js";

const DAY_MS = 86400000;
const MOST_SLOTS = 400;

export class Report {
  constructor(main, app, parts, asked) {
    this.from = h("input", { type: "date", id: "from", onchange: () => this.choose() });
    this.to = h("input", { type: "date", id: "to", onchange: () => this.choose() });
    const span = (days, word) =>
      h("button", { type: "button", onclick: () => this.choose(daysAgo(days - 1), daysAgo(0)) }, word);
    this.place = h("div", { class: "report" });
    put(
      main,
      h(
        "div",
        { class: "head" },
        h("h1", { tabindex: "-1" }, "Report"),
        h(
          "form",
          { class: "tools", onsubmit: (event) => event.preventDefault() },
          h("label", { for: "from" }, "from "),
          this.from,
          h("label", { for: "to" }, " to "),
          this.to,
          h(
            "span",
            { class: "buttons" },
            span(1, "Today"),
            span(7, "7 days"),
            span(30, "30 days"),
            span(365, "A year"),
          ),
        ),
      ),
      this.place,
    );
    this.plots = new Plots();
    this.turn(parts, asked);
    app.about();
  }

  get title() {
    return "Report";
  }

  turn(parts, asked) {
    this.from.value = asked.get("from") ?? daysAgo(29);
    this.to.value = asked.get("to") ?? daysAgo(0);
    this.load();
    return true;
  }

  choose(from = this.from.value, to = this.to.value) {
    if (from && to) location.hash = `#/report?from=${from}&to=${to}`;
  }

  async load() {
    const asked = { from: this.from.value, to: this.to.value };
    if (!this.report) put(this.place, loading("the figures"));
    try {
      const report = await read("report", asked);
      if (asked.from === this.from.value && asked.to === this.to.value) this.show((this.report = report));
    } catch (error) {
      this.report = null;
      put(this.place, failed(error));
    }
  }

  show(report) {
    const slots = dated(report);
    put(
      this.place,
      tiles(report),
      alerts(report),
      slots.length
        ? h("div", { class: "plots" }, this.plots.frames(), reasons(report))
        : h("p", { class: "empty" }, "No run ended in these days."),
      h(
        "div",
        { class: "columns even" },
        h("div", {}, slots.length ? table(slots, report.from === report.to) : ""),
        h("div", {}, parts("By agent", report.byAgent), parts("By skill", report.bySkill)),
      ),
    );
    if (slots.length) this.plots.draw(filled(slots, report));
  }

  close() {
    this.plots.close();
  }
}

function daysAgo(days) {
  return new Date(Date.now() - days * DAY_MS).toISOString().slice(0, 10);
}

/** Slots with their time (UTC): days, or the hours of one day. */
function dated(report) {
  const one = report.from === report.to;
  const first = Date.parse(`${report.from}T00:00:00Z`) / 1000;
  return (report.slots ?? []).map((slot) => {
    const at = !one ? slot.at * 86400 : slot.at < 24 ? first + slot.at * 3600 : slot.at * 3600;
    const name = new Date(at * 1000).toISOString();
    return { ...slot, at, name: one ? name.slice(11, 16) : name.slice(0, 10) };
  });
}

/** Slots with the empty days or hours between them, for charts. */
function filled(slots, report) {
  const hours = report.from === report.to;
  const step = hours ? 3600 : 86400;
  const first = Date.parse(`${report.from}T00:00:00Z`) / 1000;
  const last = hours ? first + 23 * step : Date.parse(`${report.to}T00:00:00Z`) / 1000;
  if ((last - first) / step > MOST_SLOTS) return slots;
  const known = new Map(slots.map((slot) => [slot.at, slot]));
  const none = { completed: 0, aborted: 0, errors: 0, iterations: 0, knownUSD: 0, tokens: 0, abortReasons: {} };
  return Array.from(
    { length: (last - first) / step + 1 },
    (_, at) => known.get(first + at * step) ?? { ...none, at: first + at * step },
  );
}

function money(usd) {
  return usd === null || usd === undefined ? "unknown" : dollars(usd);
}

/** A cost of which a part may be unknown. */
function atLeast(usd, unknown) {
  if (!unknown) return dollars(usd);
  return usd > 0 ? `at least ${dollars(usd)}` : "unknown";
}

function tiles(report) {
  const all = report.overall;
  const rate = all.loops ? `${Math.round((100 * all.completed) / all.loops)}%` : "–";
  const figures = [
    ["Runs", String(all.loops), `${all.completed} completed, ${count(all.errors, "error")}`],
    ["Completed", rate, `${all.verified} of ${all.completed} verified by checks`],
    ["Cost", atLeast(all.atLeastUSD, all.unknownCosts), `${money(all.avgCostUSD)} a run, p95 ${money(all.p95CostUSD)}`],
    [
      "Iterations",
      all.avgIterations === null ? "–" : all.avgIterations.toFixed(1),
      `a run, p95 ${all.p95Iterations ?? "–"}`,
    ],
    ["Tokens", short(all.tokens), `in ${duration(all.durationSeconds)} of work`],
    ["Stalled", String(all.stalled), "gave up without progress"],
  ];
  return h(
    "dl",
    { class: "tiles" },
    figures.map(([name, figure, more]) =>
      h(
        "div",
        {},
        h("dt", {}, name),
        h(
          "dd",
          {},
          h("b", {}, figure.startsWith("at least ") ? [h("small", {}, "at least "), figure.slice(9)] : figure),
          h("small", {}, more),
        ),
      ),
    ),
  );
}

function alerts(report) {
  if (!report.alerts?.length) return "";
  return h(
    "ul",
    { class: "alerts", "aria-label": "To look at" },
    report.alerts.map((words) => h("li", {}, line(words, 300))),
  );
}

function table(slots, hours) {
  const heads = [hours ? "Hour (UTC)" : "Day (UTC)", "Completed", "Aborted", "Errors", "Iterations", "Tokens", "Cost"];
  const row = (slot) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, slot.name),
      [
        slot.completed,
        slot.aborted,
        slot.errors,
        slot.iterations,
        short(slot.tokens),
        atLeast(slot.knownUSD, slot.unknownCosts),
      ].map((figure) => h("td", {}, String(figure))),
    );
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "The same as a table"),
    h(
      "div",
      { class: "scrolls", tabindex: "0", role: "region", "aria-label": "Figures by time" },
      h(
        "table",
        { class: "figures" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            heads.map((name) => h("th", { scope: "col" }, name)),
          ),
        ),
        h("tbody", {}, [...slots].reverse().map(row)),
      ),
    ),
  );
}

function reasons(report) {
  const known = Object.entries(report.abortReasons ?? {}).sort((one, other) => other[1] - one[1]);
  if (!known.length) return "";
  const most = known[0][1];
  const item = ([name, number]) => {
    const fill = h("i");
    fill.style.width = `${(100 * number) / most}%`;
    return h(
      "li",
      {},
      h("span", { class: "name" }, line(name.toLowerCase().replaceAll("_", " "), 60)),
      h("span", { class: "bar plain", "aria-hidden": "true" }, fill),
      h("b", {}, String(number)),
    );
  };
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "Why runs were aborted"),
    h("ul", { class: "reasons" }, known.map(item)),
  );
}

function parts(title, known) {
  const entries = Object.entries(known ?? {})
    .filter(([, part]) => part.loops)
    .slice(0, 20);
  if (!entries.length || (entries.length === 1 && !entries[0][0])) return "";
  const row = ([name, part]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, line(name, 80) || "none"),
      h("td", {}, String(part.loops)),
      h("td", {}, `${Math.round((100 * part.completed) / part.loops)}%`),
      h("td", {}, part.avgIterations?.toFixed(1) ?? "–"),
      h("td", {}, atLeast(part.atLeastUSD, part.unknownCosts)),
    );
  return h(
    "section",
    { class: "card" },
    h("h2", {}, title, h("small", {}, ` ${count(entries.length, "name")}`)),
    h(
      "div",
      { class: "scrolls", tabindex: "0", role: "region", "aria-label": title },
      h(
        "table",
        { class: "figures" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Name", "Runs", "Completed", "Iterations", "Cost"].map((name) => h("th", { scope: "col" }, name)),
          ),
        ),
        h("tbody", {}, entries.map(row)),
      ),
    ),
  );
}
