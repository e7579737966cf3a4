// Building of page elements, always from text and never from markup.
import { ago, duration, visible, whole } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const PLAIN = new Set(
  "class id for type name value title role scope rows min max tabindex datetime placeholder autocomplete spellcheck".split(
    " ",
  ),
);
const RENDERED = new WeakMap(); // the items and nodes of each parent of `keyed`

/** An element. Strings among its children become text; `on…` are event handlers; links lead only to our own pages. */
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

/** Replace the children of an element. */
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

/** Set a text only where it differs, so that screen readers do not repeat it. */
export function write(element, text) {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** Replace the children by these nodes, moving as few as possible and keeping the focus. */
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

/** One node for each item, by its key, rebuilt only where the item changed; open details stay open. */
export function keyed(parent, items, key, build) {
  const before = RENDERED.get(parent) ?? new Map();
  const now = new Map();
  let lost = null;
  for (const item of items) {
    let one = before.get(key(item));
    const json = one?.item === item ? one.json : JSON.stringify(item);
    if (!one || one.json !== json) {
      const node = build(item, one?.node);
      if (one && one.node !== node) {
        if (one.node.open) node.open = true;
        if (one.node.contains(document.activeElement)) lost = node;
      }
      one = { json, node };
    }
    one.item = item;
    now.set(key(item), one);
  }
  RENDERED.set(parent, now);
  arrange(
    parent,
    [...now.values()].map((one) => one.node),
  );
  lost?.querySelector("summary, a, button")?.focus({ preventScroll: true });
}

/** A relative time, with the full time as its title. `form` is `ago`, or `since` for the time that has passed. */
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

/** Announce a text to screen readers. */
export function announce(text) {
  document.getElementById("told").textContent = visible(text);
}

export function loading(what) {
  return h("p", { class: "empty" }, `Reading ${what} …`);
}

export function failed(error) {
  return h("p", { class: "note bad", role: "alert" }, error.message);
}
