// Creation of elements. No markup is ever parsed, so text from a server cannot become a script.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Create an element. `on...` are listeners, `style` is an object, true and false set and leave out an attribute.
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes, ...children) {
  return /** @type {HTMLElement} */ (filled(document.createElement(tag), attributes, children));
}

/**
 * Create an SVG element.
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes, ...children) {
  return /** @type {SVGElement} */ (filled(document.createElementNS(SVG, tag), attributes, children));
}

/** @param {Element} element @param {Record<string, any> | null | undefined} attributes @param {(Child | Child[])[]} children */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    set(element, name, value);
  }
  element.append(...nodes(children));
  return element;
}

/** @param {Element} element @param {string} name @param {any} value */
function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) {
    element.addEventListener(name.slice(2), value);
  } else if (name === "style") {
    const style = /** @type {HTMLElement} */ (element).style;
    for (const [key, one] of Object.entries(value)) style.setProperty(key, String(one));
  } else if (name === "value" && "value" in element) {
    element.value = value;
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** @param {(Child | Child[])[]} children @returns {(Node | string)[]} */
function nodes(children) {
  const found = [];
  for (const one of children.flat()) {
    if (one === null || one === undefined || one === false) continue;
    found.push(one instanceof Node ? one : String(one));
  }
  return found;
}

/**
 * Replace the content of an element.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
}

/** @type {WeakMap<Element, string>} */
const filledFor = new WeakMap();

/**
 * Replace the content of an element unless the data is unchanged, so that buttons and fields keep the focus.
 * @param {Element} element
 * @param {unknown} about
 * @param {() => Child | Child[]} make
 */
export function fillIfChanged(element, about, make) {
  const text = JSON.stringify(about);
  if (filledFor.get(element) === text && element.hasChildNodes()) return;
  filledFor.set(element, text);
  fill(element, make());
}

/**
 * Return an element that must exist.
 * @param {string} selector
 * @param {ParentNode} [where]
 * @returns {HTMLElement}
 */
export function find(selector, where = document) {
  const found = where.querySelector(selector);
  if (found === null) throw new Error(`there is no ${selector}`);
  return /** @type {HTMLElement} */ (found);
}

/** Save a file on the user's machine. @param {string} name @param {BlobPart[]} parts @param {string} type */
export function download(name, parts, type) {
  const where = URL.createObjectURL(new Blob(parts, { type }));
  h("a", { href: where, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(where), 10_000);
}

/**
 * Return a function that runs an action once for all calls until it runs.
 * @param {() => void} act
 * @param {(run: () => void) => unknown} schedule
 * @returns {() => void}
 */
function coalesce(act, schedule) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    schedule(() => {
      asked = false;
      act();
    });
  };
}

/** Return a function that runs an action in the next frame, once for all calls before it. @param {() => void} act */
export const oncePerFrame = (act) => coalesce(act, requestAnimationFrame);

/** Return a function that runs an action after a delay, once for all calls meanwhile. @param {number} milliseconds @param {() => void} act */
export const throttle = (milliseconds, act) => coalesce(act, (run) => setTimeout(run, milliseconds));
