// Shared by all parts. Data is inserted as text or as a checked picture, never as markup.
const D = JSON.parse(document.getElementById("data").textContent);
const C = D.columns;
const $ = (id) => document.getElementById(id);
const NONE = -1;

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("aria-")) node.setAttribute(name, String(value));  // these say "true" or "false"
    else if (value === false) continue;
    else if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Names of classes and rows keep their own writing direction.
const name = (text, attributes) => el("bdi", { dir: "auto", ...attributes }, text);
const count = (number) => Math.round(number).toLocaleString("en-US");
const countOf = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
const className = (number) => (number === NONE ? "none" : D.classes[number]);
const rowName = (row) => (D.names ? D.names[row] : `row ${row}`);
// Probabilities are stored as rounded whole numbers; none of them is exactly 0 or 1.
const chance = (value) => (value === null ? null : Math.min(Math.max(value / 10000, 0.00005), 0.99995));

function percent(value) {
  if (value === null) return "";
  if (value > 0 && value < 0.001) return "<\u00a00.1%";
  if (value < 1 && value > 0.999) return ">\u00a099.9%";
  return `${(100 * value).toFixed(1)}%`;
}

const quality = (row) => chance(C.quality[row]);
const confidence = (row) => chance(C.confidence[row]);
const evidence = new Map((D.evidence.rows || []).map((entry) => [entry.row, entry]));
const others = D.evidence.others || {};

// Shows only pictures that are embedded in the page, as a data URI.
function picture(address, alt, kind) {
  if (!/^data:image\/(png|jpeg);base64,[A-Za-z0-9+/=]+$/.test(address)) return el("span", { class: "snip" }, "no picture");
  const image = el("img", { src: address, alt, class: kind, loading: "lazy" });
  image.addEventListener("load", () => image.classList.toggle("tiny", image.naturalWidth <= 64));
  return image;
}

function features(pairs, most) {
  return pairs.slice(0, most).map(([column, value]) => `${column}: ${value === "" ? "–" : value}`).join("\n");
}

// The small version of a row, for a card or a list of neighbors.
function snippet(shown, row, kind) {
  if (!shown) return el("span", { class: "snip soft" }, "no picture stored");
  if (shown.image) return picture(shown.image, `Picture of ${rowName(row)}`, kind);
  const text = shown.text !== undefined ? shown.text : features(shown.features || [], 5);
  return el("span", { class: "snip", dir: "auto" }, text);
}

function fill(select, texts, all) {
  select.append(el("option", { value: "" }, all));
  texts.forEach(([value, text]) => select.append(el("option", { value }, text)));
}

function say(text) { $("message").textContent = text; }
