// Questions to the server that this page came from.
import { gently } from "./hand.js";

/** That it answered, and what: a sentence for people. */
export class Unanswered extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function answered(asked) {
  let answer;
  try {
    answer = await asked;
  } catch {
    throw new Unanswered("The server does not answer. Does `ralph serve` still run?", 0);
  }
  let said = null;
  try {
    said = await answer.json();
  } catch {
    throw new Unanswered(`The server's answer cannot be read (${answer.status}).`, answer.status);
  }
  if (!answer.ok) throw new Unanswered(said?.error ?? `The server refused (${answer.status}).`, answer.status);
  return new Promise((told) => gently(() => told(said)));
}

/** Read something: `read("runs", id, "log", {name, part})`. */
export function read(...parts) {
  return answered(fetch(address(parts), { headers: { Accept: "application/json" }, cache: "no-store" }));
}

export function address(parts) {
  const last = parts.at(-1);
  const asked = last && typeof last === "object" ? last : null;
  const path = (asked ? parts.slice(0, -1) : parts).map((part) => encodeURIComponent(part)).join("/");
  const given = Object.entries(asked ?? {}).filter(
    ([, value]) => value !== null && value !== undefined && value !== "",
  );
  return `/api/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** Steer a run: pause, resume, cancel, say. The sentence that the server answers with. */
export async function steer(run, wish, body = null) {
  const headers = { "Content-Type": "application/json", Accept: "application/json" };
  const asked = fetch(address(["runs", run, wish]), {
    method: "POST",
    headers,
    body: body ? JSON.stringify(body) : "",
  });
  return (await answered(asked)).message;
}
