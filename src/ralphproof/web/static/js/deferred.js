// Deferred updates: between press and release nothing on the page changes, so that a click hits its target.
const MAX_PRESS_MS = 5000; // a release may not be reported

const waiting = [];
let pressed = null;

/** Run `work` now, or after the release; in order. */
export function afterRelease(work) {
  if (pressed === null) work();
  else waiting.push(work);
}

/** The same in the next frame. */
export function inFrame(work) {
  return requestAnimationFrame(() => afterRelease(work));
}

function press(event) {
  if (event.type === "keydown" && (event.repeat || ![" ", "Enter"].includes(event.key))) return;
  clearTimeout(pressed);
  pressed = setTimeout(release, MAX_PRESS_MS);
}

/** Updates wait for the click event, which follows the release. */
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
