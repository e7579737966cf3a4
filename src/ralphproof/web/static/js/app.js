// The application: routing, keys, colours, and the state of the connection.
import { read } from "./api.js";
import { h, put, write } from "./dom.js";
import { onConnection } from "./live.js";
import { Report } from "./report.js";
import { Run } from "./run.js";
import { Runs } from "./runs.js";
import { Tasks } from "./tasks.js";
import { known, line } from "./text.js";

const main = document.getElementById("main");
const PAGES = { "": Runs, run: Run, tasks: Tasks, report: Report };
const THEMES = ["auto", "light", "dark"];

const app = {
  view: null,
  kind: null,
  /** Show the project's name. */
  named(project) {
    const name = String(project?.root ?? project ?? "");
    const place = document.getElementById("project");
    write(place, line(name.split("/").filter(Boolean).pop() ?? "", 60));
    place.title = line(name, 300);
  },
};

function parsed() {
  const [path, asked = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { kind: parts[0], parts: parts.slice(1), asked: new URLSearchParams(asked) };
}

function go(first) {
  const { kind, parts, asked } = parsed();
  if (kind === "main") return; // the skip link
  const page = known(PAGES, kind) ?? Runs;
  if (app.view instanceof page && app.view.turn?.(parts, asked)) return named();
  app.view?.close();
  connection("none");
  document.querySelectorAll("nav [data-page]").forEach((link) => {
    const here = link.dataset.page === (kind === "run" || !known(PAGES, kind) ? "runs" : kind || "runs");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  put(main);
  app.view = new page(main, app, parts, asked);
  named();
  if (!first) {
    scrollTo(0, 0);
    main.querySelector("h1")?.focus({ preventScroll: true });
  }
}

function named() {
  document.title = `${line(app.view.title, 80)} · ralph`;
}
app.renamed = named;

/** The server's project, and whether it allows control of runs; another server may run at this address by now. */
app.about = async () => {
  try {
    const data = await read("runs", { limit: 1 });
    app.named(data.project);
    return { control: data.control === true };
  } catch {
    return null;
  }
};

// Colours

function theme(wanted) {
  if (wanted === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
  const button = document.getElementById("theme");
  button.textContent = { auto: "◐", light: "○", dark: "●" }[wanted];
  button.setAttribute("aria-label", `Colours: ${wanted}. Change them`);
  button.title = `Colours: ${wanted === "auto" ? "as the system has them" : wanted}`;
  dispatchEvent(new CustomEvent("colours"));
}

function kept() {
  try {
    return THEMES.includes(localStorage.theme) ? localStorage.theme : "auto";
  } catch {
    return "auto";
  }
}

function nextTheme() {
  const next = THEMES[(THEMES.indexOf(kept()) + 1) % THEMES.length];
  try {
    localStorage.theme = next;
  } catch {
    // without storage the choice lasts until the page is left
  }
  theme(next);
}

// Connection

function connection(state, why) {
  const place = document.getElementById("live");
  place.dataset.state = state;
  place.lastChild.textContent = { on: "live", off: "not connected", wait: "connecting", none: "" }[state];
  const banner = document.getElementById("banner");
  if (state === "off")
    put(
      banner,
      h("b", {}, "Not connected, trying again."),
      ` ${why || "What you see is how it was. Runs go on without this page."}`,
    );
  if (state !== "wait") banner.hidden = state !== "off";
}
onConnection(connection);

// Keys

function step(by) {
  const entries = [...main.querySelectorAll("[data-nav]")].filter((one) => one.offsetParent !== null);
  if (!entries.length) return;
  const at = entries.indexOf(document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : entries.length - 1) : Math.min(entries.length - 1, Math.max(0, at + by));
  entries[next].focus();
  entries[next].scrollIntoView({ block: "nearest" });
}

const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  "/": () => main.querySelector("#filter")?.focus(),
  "?": () => document.getElementById("helping").showModal(),
  t: nextTheme,
  1: () => (location.hash = "#/"),
  2: () => (location.hash = "#/tasks"),
  3: () => (location.hash = "#/report"),
  Escape: () => app.view.up && (location.hash = app.view.up),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const field = event.target.closest?.("input, textarea, select");
  if (field) {
    if (event.key === "Escape" && field.id === "filter") {
      field.value = "";
      field.dispatchEvent(new Event("input"));
      field.blur();
    }
    return;
  }
  if (event.key.startsWith("Arrow") && !event.target.matches?.("[data-nav]")) return; // elsewhere they scroll
  const does = known(KEYS, event.key);
  if (!does) return;
  event.preventDefault();
  does();
});

document.getElementById("help").onclick = KEYS["?"];
document.getElementById("theme").onclick = nextTheme;
document.getElementById("skip").onclick = (event) => {
  event.preventDefault();
  main.focus();
};
addEventListener("hashchange", () => go(false));
theme(kept());
go(true);
