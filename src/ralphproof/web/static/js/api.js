// Requests to the server of this page.
import { afterRelease } from "./deferred.js";

/** A failed request, with a message for people and the HTTP status (0 without an answer). */
export class RequestError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function parseResponse(request) {
  let answer;
  try {
    answer = await request;
  } catch {
    throw new RequestError("The server does not answer. Does `ralph serve` still run?", 0);
  }
  let body = null;
  try {
    body = await answer.json();
  } catch {
    throw new RequestError(`The server's answer cannot be read (${answer.status}).`, answer.status);
  }
  if (!answer.ok) throw new RequestError(body?.error ?? `The server refused (${answer.status}).`, answer.status);
  return new Promise((resolve) => afterRelease(() => resolve(body)));
}

/** Read a resource: `read("runs", id, "log", {name, part})`. */
export function read(...parts) {
  return parseResponse(fetch(address(parts), { headers: { Accept: "application/json" }, cache: "no-store" }));
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
  return (await parseResponse(asked)).message;
}
