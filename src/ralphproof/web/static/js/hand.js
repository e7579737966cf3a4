// Nothing is replaced under a finger: between press and release what is new waits, so that a click hits what was meant.
const MOST_MS = 5000; // a release that we never hear of

const waiting = [];
let pressed = null;

/** Do it now, or when the hand is off; in order. */
export function gently(work) {
  if (pressed === null) work();
  else waiting.push(work);
}

/** The same with the next frame. */
export function inFrame(work) {
  return requestAnimationFrame(() => gently(work));
}

function press(event) {
  if (event.type === "keydown" && (event.repeat || ![" ", "Enter"].includes(event.key))) return;
  clearTimeout(pressed);
  pressed = setTimeout(release, MOST_MS);
}

/** A click comes right behind its release. */
function release() {
  if (pressed === null) return;
  clearTimeout(pressed);
  pressed = setTimeout(() => {
    pressed = null;
    while (waiting.length) waiting.shift()();
  });
}

for (const name of ["pointerdown", "keydown"]) addEventListener(name, press, true);
for (const name of ["pointerup", "pointercancel", "keyup", "blur"]) addEventListener(name, release, true);
