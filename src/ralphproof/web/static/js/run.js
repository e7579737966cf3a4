// `#/run/ID`: one run, live.
import { AgentPanel } from "./agent.js";
import { announce, h, moment, put, write } from "./dom.js";
import { Diff } from "./diff.js";
import { Facts } from "./facts.js";
import { gauges, sparkline } from "./gauges.js";
import { inFrame } from "./deferred.js";
import { Feed } from "./live.js";
import { Logs } from "./logs.js";
import { chip, reasonOf, sandboxChip, stateOf } from "./signs.js";
import { Steering } from "./steer.js";
import { Stories } from "./stories.js";
import { at, cost, count, known, line, short, withChildren } from "./text.js";
import { Timeline } from "./timeline.js";

const TABS = {
  "": ["Iterations", Timeline],
  stories: ["Stories", Stories],
  diff: ["Diff", Diff],
  logs: ["Logs", Logs],
  facts: ["Facts", Facts],
};
const FINAL = ["CANCELLED", "PROHIBITED_PATH", "HISTORY_REWRITTEN", "CHECKS_WEAKENED"];

export class Run {
  constructor(main, app, parts, asked) {
    this.app = app;
    this.run = parts[0];
    this.page = null;
    this.iterations = new Map();
    this.up = "#/";
    this.build(main);
    this.turn(parts, asked);
    const place = `/api/runs/${encodeURIComponent(this.run)}/events`;
    const hears = {
      run: (data) => this.hear(data),
      agent: (data) => this.agent.hear(data),
      gone: (data) => this.gone(data.error),
    };
    this.feed = new Feed(
      (last) => (last ? `${place}?after=${encodeURIComponent(last)}` : place),
      hears,
      () => app.about().then((data) => data && this.steering.allow(data.control)),
    );
  }

  get title() {
    return this.page ? `${stateOf(this.page).word}: ${line(this.page.title, 60)}` : "Run";
  }

  build(main) {
    this.heading = h("h1", { tabindex: "-1" }, "…");
    this.state = h("div", { class: "standing" });
    this.way = h("div", { class: "way" });
    this.about = h("p", { class: "about" });
    this.steering = new Steering(this.run);
    this.measures = h("div", { class: "gauges" });
    this.course = h("div", { class: "course" });
    this.agent = new AgentPanel(this.run);
    this.tabs = h("nav", { class: "tabs", "aria-label": "Parts of this run" });
    this.panel = h("section", { class: "panel", "aria-label": "Iterations" });
    const side = h("aside", { class: "side", "aria-label": "The agent" }, this.agent.node);
    put(
      main,
      h(
        "div",
        { class: "runhead" },
        h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Runs"), " / ", h("code", {}, this.run)),
        h("div", { class: "titleline" }, this.heading, this.steering.node),
        this.state,
        this.way,
        this.about,
      ),
      h("section", { class: "strip", "aria-label": "Limits" }, this.measures, this.course),
      h("div", { class: "columns" }, h("div", { class: "wide" }, this.tabs, this.panel), side),
    );
  }

  /** Show another tab of the same run; false where it is another run. */
  turn(parts, asked) {
    if (parts[0] !== this.run) return false;
    const tab = known(TABS, parts[1]) ? parts[1] : "";
    if (tab !== this.tab) {
      this.part?.close?.();
      this.tab = tab;
      put(this.panel);
      this.panel.setAttribute("aria-label", TABS[tab][0]);
      this.part = new TABS[tab][1](this.panel, this);
    }
    this.part.turn?.(asked);
    this.drawTabs();
    this.draw();
    return true;
  }

  address(tab, asked = {}) {
    const given = new URLSearchParams(asked).toString();
    return `#/run/${encodeURIComponent(this.run)}${tab ? `/${tab}` : ""}${given ? `?${given}` : ""}`;
  }

  hear(data) {
    const before = this.page;
    if (data.complete !== false) this.iterations.clear();
    for (const one of data.timeline) this.iterations.set(one.number, one);
    this.page = data;
    if (before && stateOf(before).word !== stateOf(data).word)
      announce(`This run is ${stateOf(data).word} ${reasonOf(data)}`);
    this.frame ??= inFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  gone(why) {
    this.feed.close();
    write(this.heading, "There is no such run");
    put(
      this.panel,
      h(
        "p",
        { class: "empty" },
        ...(why ? [`${line(why)}. `] : ["Nothing is known of ", h("code", {}, this.run), ". "]),
        h("a", { href: "#/" }, "All runs"),
      ),
    );
  }

  draw() {
    const { page } = this;
    if (!page) return;
    write(this.heading, line(page.title, 240) || "(no title)");
    const look = stateOf(page);
    put(this.state, chip(look, "big"), reasonOf(page) ? h("span", { class: "why" }, reasonOf(page)) : "", doing(page));
    put(this.way, wayOn(page));
    put(this.about, about(page));
    this.steering.show(page);
    gauges(this.measures, page);
    put(this.course, sparkline(page.failingCounts ?? []));
    this.agent.show(page, this.iterations);
    this.drawTabs();
    this.part.show(page, this.iterations);
    this.app.renamed();
  }

  drawTabs() {
    const shown = Object.entries(TABS).filter(([tab]) => tab !== "stories" || this.page?.hasStories);
    const links = shown.map(([tab, [name]]) => {
      const more = tab === "" && this.iterations.size ? ` ${this.iterations.size}` : "";
      return h(
        "a",
        { href: this.address(tab), "aria-current": tab === this.tab ? "page" : null },
        name,
        h("small", {}, more),
      );
    });
    const labels = `${this.tab} ${links.map((link) => link.textContent)}`;
    if (labels !== this.shownTabs) put(this.tabs, ...links);
    this.shownTabs = labels;
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.feed.close();
    this.part?.close?.();
    this.agent.close();
  }
}

function doing(page) {
  if (page.state === "ended") return h("span", { class: "doing" }, "ended ", moment(at(page.updatedAt)));
  const waits = page.wait
    ? h("span", {}, `; waits: ${line(page.wait.reason, 160)}, until `, moment(at(page.wait.until)))
    : "";
  const since = page.activity ? h("span", { class: "dim" }, " for ", moment(at(page.updatedAt), "since")) : "";
  const asked = { pause: "; it will rest before its next turn", cancel: "; it is asked to end" }[page.requested] ?? "";
  return h("span", { class: "doing" }, line(page.activity, 200), since, asked, waits);
}

/** Commands that apply now; they work even where this page may not control runs. */
function wayOn(page) {
  const { id: run } = page;
  const command = (words, why) => h("span", { class: "command" }, h("code", {}, words), h("small", {}, why));
  const said = (page.outcomeLines ?? []).map((words) => h("p", {}, line(words, 400)));
  const found = page.interruption ? h("p", {}, line(`found: ${page.interruption}`, 400)) : "";
  const unread = page.unreadMessages ? h("p", {}, `${count(page.unreadMessages, "message")} of yours for its next prompt`) : "";
  const children = page.children?.length
    ? h(
        "p",
        {},
        "runs of its own: ",
        page.children.map((one, place) => [
          place ? ", " : "",
          h("a", { href: `#/run/${encodeURIComponent(one.run)}` }, one.run),
          ` ${one.state}`,
        ]),
      )
    : "";
  const parent = page.parent
    ? h("p", {}, "begun by the agent of ", h("a", { href: `#/run/${encodeURIComponent(page.parent)}` }, page.parent))
    : "";
  const ways = {
    running: [command(`ralph attach ${run}`, "look on in a terminal")],
    paused: [command(`ralph resume ${run}`, "let it go on")],
    stopped: [command(`ralph run --resume ${run}`, "go on when it has what it waits for")],
    orphaned: [command(`ralph run --resume ${run}`, "take it up"), command(`ralph cancel ${run}`, "close it")],
    crashed: [command(`ralph run --resume ${run}`, "take it up"), command(`ralph cancel ${run}`, "close it")],
    ended: ended(page, command),
  };
  return h("div", {}, said, found, unread, children, parent, h("p", { class: "commands" }, ways[page.state] ?? []));
}

function ended(page, command) {
  const { id: run } = page;
  if (page.status === "COMPLETED") {
    return [command(`ralph verify ${run}`, "check it again"), command(`ralph diff ${run}`, "what it changed")];
  }
  return FINAL.includes(page.reason)
    ? []
    : [command(`ralph run --resume ${run}`, "go on, with a higher limit if one ended it")];
}

function about(page) {
  const tokens = page.tokens ? `, ${short(page.tokens)} tokens` : "";
  const parts = [
    [page.agent, page.model]
      .filter(Boolean)
      .map((word) => line(word, 60))
      .join(" "),
    page.preset,
    `${cost(page.cost)}${tokens}${withChildren(page)}`,
    h("span", { title: page.directory }, line(page.directory, 120)),
  ].filter(Boolean);
  const task = page.task ? [h("a", { href: `#/tasks/${encodeURIComponent(page.task)}` }, `task ${page.task}`)] : [];
  const began = h("span", {}, "began ", moment(at(page.startedAt)));
  return [...parts, ...task, began, sandboxChip(page.sandbox)].map((part) => h("span", { class: "bit" }, part));
}
