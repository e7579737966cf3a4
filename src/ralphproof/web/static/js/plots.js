// Charts over time, drawn by uPlot. The table beside them has the same numbers.
import uPlot from "../vendor/uplot/uPlot.esm.js";
import { h, put } from "./dom.js";
import { dollars, short } from "./text.js";

const HIGH = 180;
const REASONS = 4; // with a colour of their own

const KINDS = [
  {
    name: "Outcomes",
    format: String,
    stacks: true,
    rows: (slots) => [
      ["completed", "plot-good", slots.map((one) => one.completed)],
      ["aborted", "plot-warn", slots.map((one) => one.aborted)],
      ["errors", "plot-bad", slots.map((one) => one.errors)],
    ],
  },
  { name: "Cost (known)", format: dollars, rows: (slots) => [["cost", "plot", slots.map((one) => one.knownUSD)]] },
  {
    name: "Iterations",
    format: String,
    rows: (slots) => [["iterations", "plot", slots.map((one) => one.iterations)]],
  },
  { name: "Tokens", format: short, rows: (slots) => [["tokens", "plot", slots.map((one) => one.tokens ?? 0)]] },
  { name: "Abort reasons", format: String, stacks: true, rows: reasonRows },
];

function reasonRows(slots) {
  const sums = new Map();
  for (const slot of slots)
    for (const [name, number] of Object.entries(slot.abortReasons ?? {}))
      sums.set(name, (sums.get(name) ?? 0) + number);
  const named = [...sums].sort((one, other) => other[1] - one[1]).map(([name]) => name);
  const first = named.slice(0, REASONS);
  const rows = first.map((name, at) => [
    name.toLowerCase().replaceAll("_", " "),
    `plot-${at + 1}`,
    slots.map((slot) => slot.abortReasons?.[name] ?? 0),
  ]);
  const rest = named.slice(REASONS);
  if (rest.length)
    rows.push([
      "others",
      "muted",
      slots.map((slot) => rest.reduce((sum, name) => sum + (slot.abortReasons?.[name] ?? 0), 0)),
    ]);
  return rows;
}

export class Plots {
  constructor() {
    this.drawn = [];
    this.again = () => this.slots && this.draw(this.slots);
    this.sized = new ResizeObserver(() => this.fit());
    addEventListener("colours", this.again);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.again);
  }

  frames() {
    this.places = KINDS.map((kind) => ({ kind, place: hideFromReaders(h("div", { class: "plot" })) }));
    return this.places.map(({ kind, place }) =>
      h("figure", { class: "card" }, h("figcaption", {}, h("span", {}, kind.name)), place),
    );
  }

  draw(slots) {
    this.slots = slots;
    this.empty();
    for (const { kind, place } of this.places) {
      const rows = kind.rows(slots);
      place.closest("figure").hidden = !rows.length || rows.every(([, , figures]) => figures.every((one) => !one));
      if (!place.closest("figure").hidden) this.plot(kind, place, rows, slots);
    }
    this.sized.observe(this.places[0].place.closest(".plots"));
  }

  plot(kind, place, rows, slots) {
    const at = slots.map((slot) => slot.at);
    const resolved = (name) => {
      place.style.color = `var(--${name}-ink)`;
      const found = getComputedStyle(place).color;
      place.style.color = "";
      return found;
    };
    const tops = kind.stacks ? stacked(rows.map((row) => row[2])) : rows.map((row) => row[2]);
    const step = slots.length > 1 ? Math.min(...at.slice(1).map((one, index) => one - at[index])) : 86400;
    const bars = uPlot.paths.bars({ size: [0.7, 40], radius: 0.12 });
    const series = rows.map(([label, tone], index) => ({
      label,
      fill: resolved(tone),
      stroke: resolved(tone),
      width: 0,
      paths: bars,
      points: { show: false },
      value: (_, __, ___, place_) =>
        place_ === null || place_ === undefined ? "" : kind.format(rows[index][2][place_]),
    }));
    const order = kind.stacks ? [...rows.keys()].reverse() : [...rows.keys()]; // the highest stack is drawn first
    const axis = {
      stroke: resolved("muted"),
      grid: { stroke: resolved("grid"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    const made = new uPlot(
      {
        width: place.clientWidth || 320,
        height: HIGH,
        padding: [6, 10, 0, 0],
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        legend: { live: true, mount: (_, legend) => place.closest("figure").firstChild.append(hideFromReaders(legend)) },
        cursor: { drag: { x: false, y: false }, y: false, points: { show: false } },
        scales: {
          x: { time: true, range: (_, low, high) => [low - step / 2, high + step / 2] },
          y: { range: (_, low, high) => [0, Math.max(high * 1.08, kind.format === String ? 1 : 1e-9)] },
        },
        axes: [
          { ...axis, space: 56, size: 28, values: (_, ticks) => ticks.map((tick) => when(tick, step).slice(-5)) },
          {
            ...axis,
            size: 52,
            values: (_, ticks) =>
              ticks.map((tick) => (Number.isInteger(tick) || kind.format !== String ? kind.format(tick) : "")),
          },
        ],
        series: [{ label: "when", value: (_, seconds) => when(seconds, step) }, ...order.map((index) => series[index])],
      },
      [at, ...order.map((index) => tops[index])],
      place,
    );
    this.drawn.push({ made, place });
  }

  fit() {
    for (const { made, place } of this.drawn) {
      if (place.clientWidth && Math.abs(place.clientWidth - made.width) > 1)
        made.setSize({ width: place.clientWidth, height: HIGH });
    }
  }

  empty() {
    for (const { made } of this.drawn) made.destroy();
    this.drawn = [];
    this.sized.disconnect();
    for (const { place } of this.places ?? []) {
      put(place);
      place.closest("figure")?.querySelector(".u-legend")?.remove();
    }
  }

  close() {
    this.empty();
    removeEventListener("colours", this.again);
    matchMedia("(prefers-color-scheme: dark)").removeEventListener("change", this.again);
  }
}

/** Hide an element from screen readers, which read the table instead. */
function hideFromReaders(element) {
  element.setAttribute("aria-hidden", "true");
  return element;
}

function stacked(rows) {
  const sum = rows[0]?.map(() => 0) ?? [];
  return rows.map((row) => row.map((figure, index) => (sum[index] += figure)));
}

function when(seconds, step) {
  if (seconds === null || seconds === undefined) return "";
  const text = new Date(seconds * 1000).toISOString();
  return step < 86400 ? text.slice(11, 16) : text.slice(0, 10);
}
