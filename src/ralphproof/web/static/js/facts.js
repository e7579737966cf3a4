// The facts recorded at the start of a run, and its outcome.
import { h, put } from "./dom.js";
import { visible } from "./text.js";

export class Facts {
  constructor(place) {
    this.place = place;
  }

  show(page) {
    const shown = JSON.stringify([page.facts, page.outcome]);
    if (shown === this.shown) return;
    this.shown = shown;
    put(
      this.place,
      h(
        "section",
        {},
        h("h2", {}, "Outcome"),
        page.outcome ? listed(page.outcome) : h("p", { class: "dim" }, "It has not ended."),
      ),
      h("section", {}, h("h2", {}, "Facts of its beginning"), listed({ ...page.facts, directory: page.directory })),
    );
  }
}

export function listed(object) {
  const entries = Object.entries(object ?? {}).filter(([, value]) => value !== "" && value !== undefined);
  if (!entries.length) return h("p", { class: "dim" }, "Nothing.");
  return h(
    "dl",
    { class: "facts" },
    entries.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, valueNode(value)))),
  );
}

function valueNode(value) {
  if (Array.isArray(value) && !value.length) return h("span", { class: "dim" }, "none");
  if (value === null) return h("span", { class: "dim" }, "unknown or none");
  if (Array.isArray(value) && value.length && value.every((one) => typeof one === "string"))
    return h(
      "ul",
      {},
      value.map((one) => h("li", {}, one)),
    );
  if (typeof value === "object") return h("pre", { tabindex: "0" }, visible(JSON.stringify(value, null, 1)));
  return String(value);
}
