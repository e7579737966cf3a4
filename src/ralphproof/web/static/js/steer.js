// Control of a run: pause, resume, cancel, say; shown only where the server allows it.
import { steer } from "./api.js";
import { announce, h, put } from "./dom.js";
import { visible } from "./text.js";

const GOING = ["running", "paused"];

export class Steering {
  constructor(run) {
    this.run = run;
    this.may = false;
    this.page = null;
    this.said = h("span", { class: "said", role: "status" });
    this.buttons = h("span", { class: "buttons" });
    this.node = h("div", { class: "steering", hidden: true }, this.buttons, this.said);
  }

  allow(may) {
    this.may = may;
    if (this.page) this.show(this.page);
  }

  show(page) {
    this.page = page;
    const wanted = this.may ? this.wishes(page) : [];
    const shown = wanted.join();
    this.node.hidden = !wanted.length && !this.said.textContent;
    if (shown === this.shown) return;
    this.shown = shown;
    const focused = this.buttons.contains(document.activeElement);
    put(this.buttons, ...wanted.map((wish) => this.button(wish)));
    if (focused) this.buttons.querySelector("button")?.focus({ preventScroll: true });
  }

  wishes(page) {
    const { state, requested: asked } = page;
    if (asked === "cancel") return [];
    const rests = state === "paused" || asked === "pause";
    return [
      GOING.includes(state) && (rests ? "resume" : "pause"),
      [...GOING, "stopped", "orphaned", "crashed"].includes(state) && "say",
      [...GOING, "orphaned", "crashed"].includes(state) && "cancel",
    ].filter(Boolean);
  }

  button(wish) {
    const names = { pause: "Pause", resume: "Resume", say: "Say …", cancel: "Cancel …" };
    return h(
      "button",
      { type: "button", class: wish === "cancel" ? "danger" : "", "data-wish": wish, onclick: () => this.wish(wish) },
      names[wish],
    );
  }

  async wish(wish) {
    let body = null;
    if (wish === "cancel") {
      const text =
        "It ends in good order, with the runs that it began; their work is saved. Nothing takes a cancel back.";
      if (!(await asks("Cancel this run?", text, "Cancel the run"))) return;
    } else if (wish === "say") {
      const words = await asks(
        "Say something to the agent",
        "It is told this once, in its next prompt, as your own words.",
        "Leave the words",
        true,
      );
      if (!words) return;
      body = { text: words };
    }
    this.tell(`${wish} …`);
    try {
      this.tell(await steer(this.run, wish, body));
    } catch (error) {
      this.tell(error.message, true);
    }
  }

  tell(words, bad = false) {
    this.said.textContent = visible(words);
    this.said.classList.toggle("bad", bad);
    this.node.hidden = false;
    announce(words);
  }
}

/** Ask in a dialog; the result is false, true, or the text. */
function asks(title, text, yes, words = false) {
  const dialog = document.getElementById("asking");
  const field = document.getElementById("asking-words");
  document.getElementById("asking-title").textContent = title;
  document.getElementById("asking-text").textContent = text;
  document.getElementById("asking-yes").textContent = yes;
  document.getElementById("asking-label").hidden = field.hidden = !words;
  document.getElementById("asking-yes").className = words ? "main" : "danger";
  field.value = "";
  dialog.returnValue = "no";
  dialog.showModal();
  (words ? field : document.getElementById("asking-no")).focus();
  return new Promise((settle) => {
    dialog.addEventListener(
      "close",
      () => {
        const agreed = dialog.returnValue === "yes";
        settle(agreed && (words ? field.value.trim() : true));
      },
      { once: true },
    );
  });
}
