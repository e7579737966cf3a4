// `#/tasks`: the task board, and the page of one task.
import { read } from "./api.js";
import { failed, h, keyed, loading, put } from "./dom.js";
import { Feed } from "./live.js";
import { chip, taskState } from "./signs.js";
import { lanePart } from "./stories.js";
import { detail } from "./task.js";
import { cost, count, known, line } from "./text.js";

const LANES = { todo: "To do", coder: "Coder", reviewer: "Reviewer", tester: "Tester", qa: "QA", done: "Done" };

export class Tasks {
  constructor(main, app, parts) {
    this.app = app;
    this.main = main;
    this.id = parts[0] ?? "";
    this.up = this.id ? "#/tasks" : null;
    this.place = h("div", {}, loading("the tasks"));
    const heading = this.id
      ? [
          h("p", { class: "crumbs" }, h("a", { href: "#/tasks" }, "Tasks"), " / ", h("code", {}, this.id)),
          h("h1", { tabindex: "-1" }, this.id),
        ]
      : [h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Tasks"))];
    put(main, ...heading, this.place);
    this.feed = new Feed(() => "/api/events", { tasks: () => this.load(), runs: (data) => this.hear(data) });
    this.load();
  }

  get title() {
    return this.id ? `Task ${this.id}` : "Tasks";
  }

  turn(parts) {
    return (parts[0] ?? "") === this.id;
  }

  hear(data) {
    if (data.complete) this.app.named(data.project);
    this.soon();
  }

  /** Reload after changes of runs, at most once a second. */
  soon() {
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.load();
    }, 1000);
  }

  async load() {
    try {
      const data = this.id ? await read("tasks", this.id) : await read("tasks");
      const text = JSON.stringify(data);
      if (text === this.shown) return;
      this.shown = text;
      if (this.id) this.one(data);
      else this.board(data.lanes);
    } catch (error) {
      put(this.place, failed(error));
      this.shown = null;
    }
  }

  board(lanes) {
    if (!lanes.some((lane) => lane.tasks.length)) {
      put(
        this.place,
        h(
          "p",
          { class: "empty" },
          "No tasks. ",
          h("code", {}, "ralph task create"),
          " and ",
          h("code", {}, "ralph task import"),
          " make them.",
        ),
      );
      return;
    }
    this.lanes ??= h("div", { class: "lanes six" });
    if (!this.lanes.isConnected) put(this.place, this.lanes);
    keyed(
      this.lanes,
      lanes,
      (lane) => lane.name,
      (lane) => lanePart(known(LANES, lane.name) ?? lane.name, lane.tasks.map(ticket)),
    );
  }

  one(task) {
    this.main.querySelector("h1").textContent = line(task.title, 200) || line(task.id, 60);
    const open = new Set([...this.place.querySelectorAll("details[open]")].map((one) => one.dataset.key));
    put(this.place, ...detail(task));
    for (const one of this.place.querySelectorAll("details")) if (open.has(one.dataset.key)) one.open = true;
  }

  close() {
    clearTimeout(this.timer);
    this.feed.close();
  }
}

function costWords(spend) {
  const words = cost(spend);
  return words === "unknown" ? "cost unknown" : words;
}

function ticket(task) {
  const stage = task.stage
    ? `${task.stage} ${task.stageIterations}${task.stageMaximumIterations ? `/${task.stageMaximumIterations}` : ""}`
    : "";
  const bits = [
    stage,
    task.iterations ? count(task.iterations, "iteration") : "",
    task.cost ? costWords(task.cost) : "",
    task.assignee,
  ].filter(Boolean);
  const needs = task.dependencies?.length
    ? h(
        "p",
        { class: "dim" },
        `after ${task.dependencies
          .slice(0, 5)
          .map((id) => line(id, 40))
          .join(", ")}`,
      )
    : "";
  return h(
    "article",
    { class: "ticket" },
    h(
      "h3",
      {},
      h(
        "a",
        { href: `#/tasks/${encodeURIComponent(task.id)}`, "data-nav": true },
        h("code", {}, line(task.id, 60)),
        " ",
        line(task.title, 160),
      ),
    ),
    h("p", {}, chip(taskState(task)), task.reason ? h("small", {}, ` ${line(task.reason, 200)}`) : ""),
    bits.length ? h("p", { class: "dim" }, bits.map((bit) => line(bit, 60)).join(" · ")) : "",
    needs,
  );
}
