// Gauges of a run's limits, and the course of its failing checks.
import { h, keyed, svg } from "./dom.js";
import { bar } from "./signs.js";
import { cost, count, measured } from "./text.js";

export function gauges(place, page) {
  const limits = page.limits?.length ? page.limits : [];
  keyed(
    place,
    limits.filter((one) => one.max !== null || one.used !== null),
    (one) => one.name,
    (one) => gauge(one, page),
  );
}

const NAMES = { dailyCost: "day's cost" };

function gauge(limit, page) {
  const name = NAMES[limit.name] ?? limit.name;
  const used =
    limit.name === "cost" ? cost(page.costWithChildren ?? page.cost) : `${limit.atLeast ? "at least " : ""}${measured(limit.used, limit.unit)}`;
  const text = limit.max === null ? `${used}, no limit` : `${used} of ${measured(limit.max, limit.unit)}`;
  return h(
    "div",
    { class: "gauge" },
    h("span", { class: "name" }, name),
    h("span", { class: "figure" }, text),
    limit.max === null ? "" : bar(limit.used, limit.max, name, text),
  );
}

const WIDE = 300;
const HIGH = 34;

/** A sparkline of failures before the first iteration and after each. */
export function sparkline(counts) {
  const known = counts
    .map((failing, iteration) => ({ failing, iteration }))
    .filter((one) => one.failing !== null);
  if (known.length < 1) return [];
  const most = Math.max(1, ...known.map((one) => one.failing));
  const last = known.at(-1).iteration;
  const first = known[0].iteration;
  const x = (one) => 6 + ((one.iteration - first) / Math.max(1, last - first)) * (WIDE - 12);
  const y = (one) => HIGH - 6 - (one.failing / most) * (HIGH - 12);
  const path = known.map((one, at) => `${at ? "L" : "M"}${x(one).toFixed(1)} ${y(one).toFixed(1)}`).join("");
  const dots = known.map((one) => {
    const where = one.iteration ? `iteration ${one.iteration}` : "before the first";
    return svg(
      "circle",
      { cx: x(one), cy: y(one), r: known.length > 40 ? 1.5 : 3, class: one.failing ? "bad" : "good" },
      svg("title", {}, `${where}: ${one.failing} failing`),
    );
  });
  const told = known.map((one) => one.failing).join(" → ");
  const label = `Failing, ${count(known.length, "time")} asked: ${known
    .slice(-30)
    .map((one) => one.failing)
    .join(", ")}`;
  return [
    h(
      "p",
      { class: "name" },
      "failing ",
      h(
        "b",
        { class: known.at(-1).failing ? "bad" : "good" },
        told.length > 40 ? `${known[0].failing} → … → ${known.at(-1).failing}` : told,
      ),
    ),
    svg(
      "svg",
      {
        viewBox: `0 0 ${WIDE} ${HIGH}`,
        class: "spark",
        preserveAspectRatio: "xMinYMid meet",
        role: "img",
        "aria-label": label,
      },
      svg("path", { d: `M0 ${HIGH - 6}H${WIDE}`, class: "ground" }),
      svg("path", { d: path, class: "curve" }),
      ...dots,
    ),
  ];
}
