// Formatting of numbers, times and untrusted text; nothing here touches the page.

const HIDDEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e" +
    "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}]|[\\ud800-\\udfff]",
  "gu",
);
const COLOURS = /\u001b\[[0-9;:]*m/g;

/** Untrusted text, with invisible and direction-changing characters replaced by visible marks. */
export function visible(text) {
  return String(text).replace(COLOURS, "").replace(/\r\n/g, "\n").replace(HIDDEN, mark);
}

function mark(sign) {
  const code = sign.codePointAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  if (code >= 0xdc80 && code <= 0xdcff) return `\\x${(code - 0xdc00).toString(16)}`;
  return `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
}

/** Untrusted text in one line of limited length. */
export function line(text, most = 300) {
  const flat = visible(String(text).slice(0, most * 2))
    .replace(/\s+/g, " ")
    .trim();
  return flat.length > most ? `${flat.slice(0, most - 1)}…` : flat;
}

export function dollars(usd) {
  if (usd !== 0 && Math.abs(usd) < 0.01) return `$${usd.toFixed(4)}`;
  return `$${usd.toFixed(2)}`;
}

/** What a run cost. What nobody knows is never zero. */
export function cost(spend) {
  if (!spend) return "unknown";
  const notional = spend.notional ? " notional" : "";
  if (spend.usd === null || spend.usd === undefined) return "unknown";
  return `${spend.atLeast ? "at least " : ""}${dollars(spend.usd)}${notional}`;
}

/** What was spent together with the runs that its agent began, where those spent anything. */
export function withChildren(run) {
  return run.costWithChildren ? `, with runs of its own ${cost(run.costWithChildren)}` : "";
}

/** A time of the server's in seconds since 1970. */
export function at(time) {
  return time ? Date.parse(time) / 1000 : null;
}

export function short(number) {
  if (number === null || number === undefined) return "unknown";
  if (number < 1000) return String(Math.round(number * 10) / 10);
  if (number < 1e6) return `${(number / 1e3).toFixed(number < 1e4 ? 1 : 0)}k`;
  return `${(number / 1e6).toFixed(number < 1e7 ? 1 : 0)}M`;
}

export function bytes(number) {
  if (number < 1024) return `${number} B`;
  if (number < 1 << 20) return `${(number / 1024).toFixed(1)} KB`;
  return `${(number / (1 << 20)).toFixed(1)} MB`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const whole = Math.max(0, seconds);
  if (whole < 10) return `${whole.toFixed(1)}s`;
  if (whole < 60) return `${Math.round(whole)}s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return both(minutes, "m", Math.floor(whole % 60), "s");
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? both(hours, "h", minutes % 60, "m") : both(Math.floor(hours / 24), "d", hours % 24, "h");
}

function both(large, unit, small, part) {
  return small ? `${large}${unit} ${small}${part}` : `${large}${unit}`;
}

export function ago(at, now = Date.now() / 1000) {
  const gone = now - at;
  if (gone < 5) return "just now";
  if (gone < 60) return `${Math.floor(gone / 5) * 5}s ago`;
  if (gone < 3600) return `${Math.floor(gone / 60)}m ago`;
  if (gone < 86400) return `${Math.floor(gone / 3600)}h ago`;
  return `${Math.floor(gone / 86400)}d ago`;
}

export function whole(at) {
  const moment = new Date(at * 1000);
  return `${moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" })} (${moment.toISOString()})`;
}

/** The own property of a table, for untrusted names. */
export function known(table, name) {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

export function count(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}

/** A measure of a limit, in its own unit. */
export function measured(number, unit) {
  if (number === null || number === undefined) return "unknown";
  if (unit === "usd") return dollars(number);
  if (unit === "seconds") return duration(number);
  return unit === "tokens" ? short(number) : String(number);
}
