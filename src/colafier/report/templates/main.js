// Connects the parts: summary, settings, buttons and keyboard shortcuts.
function renderSummary() {
  const h = D.headline;
  $("title").textContent = D.title;
  $("subtitle").textContent = D.subtitle;
  const steps = h.next.map((item) => el("li", {}, item.filter ? el("button", { type: "button", class: "link", on: { click: () => jump(item.filter) } }, item.text) : item.text));
  $("cards").replaceChildren(
    el("div", {}, el("h3", {}, h.title), el("div", { class: "big" }, h.big, el("small", {}, h.share)), h.lead.map((text) => el("p", {}, text))),
    el("div", {}, el("h3", {}, "How sure is this?"), h.sure.map((text) => el("p", {}, text))),
    ...(D.scores ? [el("div", { id: "scores" }, el("h3", {}, "Compared with the truth"), D.scores.map((text) => el("p", {}, text)))] : []),
    el("div", {}, el("h3", {}, "What to do next"), el("ol", {}, steps)));
}

function jump(filter) {
  $("filters").reset();
  for (const [key, value] of Object.entries(filter)) $(`f-${key}`).value = key === "action" ? String(D.actions.indexOf(value)) : value;
  refilter();
  $("review").scrollIntoView();
}

function renderProgress() {
  const total = D.to_review, done = decisions.size;
  $("progress").max = Math.max(total, 1);
  $("progress").value = Math.min(done, total);
  $("progress-text").textContent = `${count(done)} decided, ${count(total)} to review`;
  $("undo").disabled = past.length === 0;
  $("save").disabled = decisions.size === 0;
}

function undoLast() {
  const row = undo();
  if (row === null) return say("There is nothing to undo.");
  if (listed().includes(row)) select(row);
  say(`Row ${row}: decision undone.`);
}

function theme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
}

const KEYS = {
  k: () => choose("keep"), s: () => choose("suggestion"), x: () => choose("exclude"), o: () => { const list = $("other"); if (list) list.focus(); },
  n: () => step(1), ArrowRight: () => step(1), p: () => step(-1), ArrowLeft: () => step(-1), u: undoLast, "/": () => $("f-search").focus(), "?": () => $("keys").showModal(),
};

function onKey(event) {
  if ($("keys").open || event.altKey) return;
  const typing = event.target.closest && event.target.closest("input, select, textarea");
  if (event.key === "Escape" && typing) { event.target.blur(); return; }
  if (typing) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") { event.preventDefault(); undoLast(); return; }
  if (event.ctrlKey || event.metaKey) return;
  const run = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (run) { event.preventDefault(); run(); }
}

function wire() {
  const used = (column) => [...new Set(column)].filter((value) => value !== NONE).sort((a, b) => a - b);
  for (const key of ["original", "suggested"]) fill($(`f-${key}`), used(C[key]).map((value) => [value, className(value)]), "any");
  fill($("f-action"), used(C.action).map((value) => [value, D.actions[value]]), "any");
  fill($("f-reason"), used(C.reason).map((value) => [value, D.reasons[value] || "none"]), "any");
  $("filters").addEventListener("change", refilter);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("reset", () => setTimeout(refilter));
  let timer = 0;
  $("f-search").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(refilter, 150); });
  for (const mode of ["gallery", "table"]) $(`mode-${mode}`).addEventListener("click", () => { view.mode = mode; view.page = 0; const rows = listed(); if (!rows.includes(view.selected)) view.selected = rows.length ? rows[0] : null; renderList(); renderPanel(); });
  $("page-back").addEventListener("click", () => { view.page -= 1; renderList(); });
  $("page-next").addEventListener("click", () => { view.page += 1; renderList(); });
  $("undo").addEventListener("click", undoLast);
  $("save").addEventListener("click", save);
  $("load").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", async () => { const [file] = $("file").files; if (file) say(take(await file.text())); $("file").value = ""; });
  $("help").addEventListener("click", () => $("keys").showModal());
  $("theme").addEventListener("click", theme);
  document.addEventListener("keydown", onKey);
  addEventListener("storage", (event) => { if (event.key === KEY) { restore(); renderProgress(); refilter(); } });
  addEventListener("beforeunload", (event) => { if (!kept && decisions.size) event.preventDefault(); });
  watchers.push((row) => { if (row === null) { renderList(); renderPanel(); } else refreshRow(row); renderProgress(); renderPlanner(); });
}

function renderSettings() {
  $("settings").replaceChildren(...D.about.map(([title, pairs]) => el("div", { class: "box" }, el("h3", {}, title),
    el("table", {}, el("tbody", {}, pairs.map(([key, value]) => el("tr", {}, el("th", { scope: "row" }, name(key)), el("td", {}, name(value)))))))));
}

restore();
renderSummary();
wire();
renderProgress();
refilter();
$("gallery").classList.toggle("texts", ![...evidence.values()].some((entry) => entry.shown.image));
renderFigures();
renderSettings();
document.documentElement.dataset.ready = "yes";
