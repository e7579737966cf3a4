// The event stream of a page, which reconnects until it is closed.
import { read } from "./api.js";
import { afterRelease } from "./deferred.js";

const FIRST_MS = 500;
const MOST_MS = 8000;
const HIDDEN_MS = 60000; // after which a hidden page closes its connection
const QUIET_MS = 1500; // an interruption that is shorter is not shown
const SILENT_MS = 25000; // the server sends something every ten seconds

/**
 * `new Feed(after => "/api/…", {runs: (data, id) => …})`. After a break it asks for what came after the last id that
 * it has seen. The browser reconnects after a broken connection; where it gives up, we reconnect at growing intervals.
 * `joined` is called after every connection, which may be to another server.
 */
export class Feed {
  constructor(address, hear, joined = () => {}) {
    this.address = address;
    this.hear = hear;
    this.joined = joined;
    this.last = "";
    this.wait = FIRST_MS;
    this.seen = () => this.look();
    document.addEventListener("visibilitychange", this.seen);
    addEventListener("online", this.seen);
    tell("wait");
    this.open();
  }

  open() {
    this.source?.close();
    clearTimeout(this.again);
    const source = (this.source = new EventSource(this.address(this.last)));
    this.listen();
    source.onopen = () => {
      this.wait = FIRST_MS;
      this.listen();
      clearTimeout(this.alarm);
      this.alarm = null;
      tell("on");
      this.joined();
    };
    source.onerror = () => this.lost(source);
    source.addEventListener("still", () => this.listen());
    for (const [name, hears] of Object.entries(this.hear)) {
      source.addEventListener(name, (event) => {
        this.listen();
        if (event.lastEventId) this.last = event.lastEventId;
        afterRelease(() => this.closed || hears(JSON.parse(event.data), event.lastEventId));
      });
    }
  }

  /** Restart the silence timer: a server that hangs, or a dead tunnel, does not close the connection. */
  listen() {
    this.heard = Date.now();
    clearTimeout(this.silence);
    this.silence = setTimeout(() => {
      if (this.source.readyState === EventSource.CLOSED) return; // closed on purpose, or about to be reopened
      tell("off", "The server has fallen silent.");
      this.open();
    }, SILENT_MS);
  }

  lost(source) {
    if (source !== this.source) return;
    this.alarm ??= setTimeout(() => tell("off"), QUIET_MS);
    if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    clearTimeout(this.again);
    this.again = setTimeout(() => this.open(), this.wait);
    if (this.wait > FIRST_MS) this.ask();
    this.wait = Math.min(MOST_MS, this.wait * 2);
  }

  /** Ask for the reason of a refusal, which an EventSource does not report. */
  async ask() {
    try {
      await read("runs", { limit: 1 });
    } catch (error) {
      if (error.status) tell("off", error.message);
    }
  }

  look() {
    clearTimeout(this.rest);
    if (document.hidden) this.rest = setTimeout(() => this.source.close(), HIDDEN_MS);
    else if (this.source.readyState === EventSource.CLOSED || Date.now() - this.heard > HIDDEN_MS) this.open();
  }

  close() {
    this.closed = true;
    this.source.close();
    for (const timer of [this.again, this.alarm, this.rest, this.silence]) clearTimeout(timer);
    document.removeEventListener("visibilitychange", this.seen);
    removeEventListener("online", this.seen);
    tell("none");
  }
}

let listener = () => {};

/** Set the function that shows the state of the connection. */
export function onConnection(show) {
  listener = show;
}

function tell(state, why = "") {
  listener(state, why);
}
