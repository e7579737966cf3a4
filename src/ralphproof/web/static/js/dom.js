// The only way in which anything gets onto the page: as text, never as markup.
import { ago, duration, visible, whole } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const PLAIN = new Set(
  "class id for type name value title role scope rows min max tabindex datetime placeholder autocomplete spellcheck".split(
    " ",
  ),
);
const TOLD = new WeakMap();

/** An element. Strings among its children become text; `on…` are functions; links lead to our own pages alone. */
export function h(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "href") made.setAttribute("href", own(value));
    else if (["hidden", "open", "disabled", "checked", "selected"].includes(name)) made[name] = Boolean(value);
    else if (PLAIN.has(name) || /^(aria|data)-[a-z-]+$/.test(name))
      made.setAttribute(name, value === true ? "" : visible(value));
    else throw new Error(`no such attribute here: ${name}`);
  }
  fill(made, children);
  return made;
}

function own(address) {
  if (!/^(#|\/(?!\/))/.test(address)) throw new Error("links lead to our own pages alone");
  return address;
}

function fill(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    parent.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
}

/** Have these children and no others. */
export function put(parent, ...children) {
  parent.replaceChildren();
  fill(parent, children);
  return parent;
}

export function svg(tag, given = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(given)) made.setAttribute(name, String(value));
  fill(made, children);
  return made;
}

/** Write a text only where it differs: screen readers and the browser are left alone otherwise. */
export function write(element, text) {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** Exactly these nodes in this order, moving as few as possible; what has the focus keeps it. */
export function arrange(parent, nodes) {
  const active = document.activeElement;
  let at = parent.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
  if (active && active !== document.activeElement && parent.contains(active)) active.focus({ preventScroll: true });
}

/** One node for each item, by its key, built anew only where the item has changed; what was open stays open. */
export function keyed(parent, items, key, build) {
  const before = TOLD.get(parent) ?? new Map();
  const now = new Map();
  let lost = null;
  for (const item of items) {
    let one = before.get(key(item));
    const told = one?.item === item ? one.told : JSON.stringify(item);
    if (!one || one.told !== told) {
      const node = build(item, one?.node);
      if (one && one.node !== node) {
        if (one.node.open) node.open = true;
        if (one.node.contains(document.activeElement)) lost = node;
      }
      one = { told, node };
    }
    one.item = item;
    now.set(key(item), one);
  }
  TOLD.set(parent, now);
  arrange(
    parent,
    [...now.values()].map((one) => one.node),
  );
  lost?.querySelector("summary, a, button")?.focus({ preventScroll: true });
}

/** A moment, as it is by now; the full one is its title. `form` is ago, or since: how long it has lasted. */
export function moment(at, form = "ago") {
  if (at === null || at === undefined) return "";
  const made = h("time", {
    datetime: new Date(at * 1000).toISOString(),
    title: whole(at),
    "data-at": at,
    "data-form": form,
  });
  tick(made);
  return made;
}

export function tick(made) {
  const at = Number(made.dataset.at);
  const text = made.dataset.form === "since" ? duration(Math.floor(Date.now() / 1000 - at)) : ago(at);
  if (made.textContent !== text) made.textContent = text;
}

setInterval(() => {
  if (!document.hidden) document.querySelectorAll("time[data-at]").forEach(tick);
}, 1000);

/** Tell a screen reader, once, when it has time. */
export function announce(text) {
  document.getElementById("told").textContent = visible(text);
}

export function loading(what) {
  return h("p", { class: "empty" }, `Reading ${what} …`);
}

export function failed(error) {
  return h("p", { class: "note bad", role: "alert" }, error.message);
}
