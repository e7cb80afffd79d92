// The list of rows: filtered, sorted, as a gallery or as a table, page by page.
const SIZES = { gallery: 24, table: 50 };
const view = { mode: "gallery", page: 0, rows: [], selected: null };
const FILTERS = ["original", "suggested", "action", "reason"];
const KEPT = D.actions.indexOf("keep");

const infinite = (value) => (value === null ? Infinity : value);
const rank = (row) => (C.action[row] === KEPT ? 2 : 0) + (C.quality[row] === null ? 1 : 0);
const ORDERS = {
  doubt: (a, b) => rank(a) - rank(b) || infinite(C.quality[a]) - infinite(C.quality[b]) || a - b,
  close: (a, b) => Math.abs(infinite(C.quality[a]) - 5000) - Math.abs(infinite(C.quality[b]) - 5000) || a - b,
  confidence: (a, b) => (C.confidence[b] ?? -1) - (C.confidence[a] ?? -1) || a - b,
  lid: (a, b) => (C.lid[b] ?? -1) - (C.lid[a] ?? -1) || a - b,
  row: (a, b) => a - b,
};
const sorted = {};

function order(kind) {
  if (!sorted[kind]) {
    const rows = Array.from({ length: D.rows }, (_, row) => row);
    sorted[kind] = rows.sort((a, b) => ORDERS[kind](a, b) || 0);
  }
  return sorted[kind];
}

function textOf(row) {
  const entry = evidence.get(row);
  const text = entry && entry.shown && entry.shown.text;
  return `${row} ${rowName(row)} ${className(C.original[row])} ${className(C.suggested[row])} ${text || ""}`.toLowerCase();
}

function matching() {
  const wanted = FILTERS.map((key) => [C[key], $(`f-${key}`).value]).filter(([, value]) => value !== "");
  const decided = $("f-decided").value;
  const words = $("f-search").value.trim().toLowerCase();
  return order($("f-sort").value).filter((row) =>
    wanted.every(([column, value]) => column[row] === Number(value)) &&
    (!decided || isDecided(row) === (decided === "yes")) && (!words || textOf(row).includes(words)));
}

function listed() { return view.mode === "gallery" ? view.rows.filter((row) => evidence.has(row)) : view.rows; }

function refilter() {
  view.rows = matching();
  view.page = 0;
  if (view.mode === "gallery" && evidence.size === 0) view.mode = "table";
  const rows = listed();
  if (!rows.includes(view.selected)) view.selected = rows.length ? rows[0] : null;
  renderList();
  renderPanel();
  renderPlanner();
}

function renderList() {
  const rows = listed(), size = SIZES[view.mode], pages = Math.max(1, Math.ceil(rows.length / size));
  view.page = Math.min(view.page, pages - 1);
  const shown = rows.slice(view.page * size, (view.page + 1) * size);
  const pictures = view.rows.reduce((sum, row) => sum + evidence.has(row), 0);
  $("mode-gallery").textContent = `With evidence (${count(pictures)})`;
  $("mode-table").textContent = `All rows as a table (${count(view.rows.length)})`;
  ["gallery", "table"].forEach((mode) => $(`mode-${mode}`).setAttribute("aria-pressed", view.mode === mode));
  $("gallery").hidden = view.mode !== "gallery";
  $("table").hidden = view.mode !== "table";
  $("nothing").hidden = rows.length > 0;
  $("page-now").textContent = `${view.page + 1} of ${count(pages)}`;
  $("page-back").disabled = view.page === 0;
  $("page-next").disabled = view.page >= pages - 1;
  if (view.mode === "gallery") $("gallery").replaceChildren(...shown.map((row) => el("li", {}, card(row))));
  else $("table").replaceChildren(tableOf(shown));
}

function mark(row) {
  const found = decisions.get(row);
  if (!found) return null;
  const text = { keep: "kept", exclude: "excluded" }[found.choice] || `→ ${found.label}`;
  return el("span", { class: `mark ${found.choice}`, dir: "auto" }, text);
}

function pair(row) {
  const original = className(C.original[row]), suggested = className(C.suggested[row]);
  if (C.suggested[row] === NONE || original === suggested) return el("span", { class: "pair" }, name(original, { class: "cut" }));
  return el("span", { class: "pair" }, name(original, { class: "was cut" }), "→", name(suggested, { class: "cut" }));
}

function card(row) {
  const entry = evidence.get(row), wrong = quality(row) === null ? 0 : 1 - quality(row);
  return el("button", {
    type: "button", class: "card", "data-row": row, "aria-current": view.selected === row,
    on: { click: () => select(row) },
  }, snippet(entry.shown, row, "pic"), pair(row),
  el("span", { class: "soft small" }, `${D.actions[C.action[row]]}, ${percent(wrong)} likely wrong`),
  el("span", { class: "meter", "aria-hidden": true }, el("i", { style: { width: `${100 * wrong}%` } })), mark(row));
}

function tableOf(rows) {
  const heads = ["row", "name", "original", "suggested", "confidence", "label quality", "action", "reason", "LID", "decision"];
  const numeric = new Set([0, 4, 5, 8]);
  const head = el("tr", {}, heads.map((text, i) => el("th", { class: numeric.has(i) && "n", scope: "col" }, text)));
  const body = rows.map((row) => {
    const found = decisions.get(row), cells = [
      el("button", { type: "button", class: "link", "aria-label": `Select row ${row}`, on: { click: () => select(row) } }, String(row)),
      name(rowName(row), { class: "cut" }), name(className(C.original[row]), { class: "cut" }), name(className(C.suggested[row]), { class: "cut" }),
      percent(confidence(row)), percent(quality(row)), D.actions[C.action[row]], name(D.reasons[C.reason[row]], { class: "cut" }),
      C.lid[row] === null ? "" : String(C.lid[row]), found ? name(found.choice === "exclude" ? "exclude" : found.label) : "",
    ];
    return el("tr", { "data-row": row, "aria-selected": view.selected === row, on: { click: () => select(row) } },
      cells.map((cell, i) => el("td", { class: numeric.has(i) && "n" }, cell)));
  });
  return el("table", {}, el("thead", {}, head), el("tbody", {}, body));
}

function refreshRow(row) {
  const old = document.querySelector(`#gallery [data-row="${row}"]`);
  if (old) { const focused = document.activeElement === old, fresh = card(row); old.replaceWith(fresh); if (focused) fresh.focus(); }
  else if (view.mode === "table") renderList();
}

function select(row) {
  const before = view.selected;
  view.selected = row;
  const place = listed().indexOf(row), page = Math.floor(place / SIZES[view.mode]);
  if (place >= 0 && page !== view.page) { view.page = page; renderList(); }
  else document.querySelectorAll("#gallery [data-row], #table [data-row]").forEach((node) => {
    const own = Number(node.dataset.row) === row;
    if (Number(node.dataset.row) === before || own) node.setAttribute(view.mode === "gallery" ? "aria-current" : "aria-selected", own);
  });
  renderPanel();
}

function step(by, open) {
  const rows = listed();
  let place = rows.indexOf(view.selected);
  do place += by; while (open && place < rows.length && isDecided(rows[place]));
  if (place >= 0 && place < rows.length) { select(rows[place]); return true; }
  return false;
}
