// What happens while somebody looks: one stream of events, kept up until it is closed.
import { read } from "./api.js";
import { gently } from "./hand.js";

const FIRST_MS = 500;
const MOST_MS = 8000;
const HIDDEN_MS = 60000; // a page that nobody sees gives its connection back
const QUIET_MS = 1500; // a server that is back sooner was hardly gone
const SILENT_MS = 25000; // one that is there says something every ten seconds

/**
 * `new Feed(after => "/api/…", {runs: (data, id) => …})`. After a break it asks for what came after the last id that
 * it has seen. The browser joins again by itself where a connection breaks; where it gives up, we begin anew, ever slower.
 * `joined` is called whenever it is connected, be it to another server.
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
        gently(() => this.closed || hears(JSON.parse(event.data), event.lastEventId));
      });
    }
  }

  /** Something was heard. A server that hangs, or a tunnel that is dead, closes nothing: it only falls silent. */
  listen() {
    this.heard = Date.now();
    clearTimeout(this.silence);
    this.silence = setTimeout(() => {
      if (this.source.readyState === EventSource.CLOSED) return; // it rests, or is about to be opened again
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

  /** Why it refuses: a stream cannot tell. */
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

/** Who shows whether we are connected. */
export function onConnection(hears) {
  listener = hears;
}

function tell(state, why = "") {
  listener(state, why);
}
