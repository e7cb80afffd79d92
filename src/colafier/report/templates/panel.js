// The selected row: what it looks like, what can be decided, and why it is doubted.
const WHY = {
  wrong: "Another class is clearly likelier than the original one.",
  ambiguous: "Two classes fit this row about as well.",
  outlier: "No class fits this row.",
  duplicate: "An identical row has another label.",
};

function big(shown, row, original, suggested) {
  if (!shown) return el("p", { class: "soft" }, "Pictures and reasons are kept for the most doubtful rows only.");
  if (shown.image) return picture(shown.image, `Picture of ${rowName(row)}`);
  if (shown.text !== undefined) return el("p", { dir: "auto" }, shown.text);
  const usual = D.evidence.usual || {}, of = (column, label) => (usual[column] || {})[label] ?? "";
  const both = suggested !== original && suggested !== "none";
  const head = el("tr", {}, el("th", {}, "column"), el("th", {}, "here"), el("th", {}, "usual for ", name(original)), both && el("th", {}, "usual for ", name(suggested)));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Features" }, el("table", {}, el("thead", {}, head), el("tbody", {}, shown.features.map(([column, value]) =>
    el("tr", {}, el("th", {}, name(column)), el("td", {}, name(value)), el("td", {}, name(of(column, original))), both && el("td", {}, name(of(column, suggested))))))));
}

function labelsOf(row) {
  const suggested = C.suggested[row], line = (term, value, number) => [el("dt", {}, term), el("dd", {}, name(value)), el("dd", { class: "n" }, number)];
  return el("dl", { class: "labels" },
    line("original", className(C.original[row]), quality(row) === null ? "" : `right: ${percent(quality(row))}`),
    suggested !== NONE && line("suggested", className(suggested), confidence(row) === null ? "" : `right: ${percent(confidence(row))}`),
    line("now", className(C.label[row]), D.actions[C.action[row]]),
    C.truth && C.truth[row] !== NONE && line("truth", className(C.truth[row]), C.truth[row] === C.original[row] ? "original is right" : "original is wrong"));
}

function choose(choice, other) {
  const row = view.selected;
  if (row === null) return;
  if (choice === "keep" && C.original[row] === NONE) return say("This row has no original label to keep.");
  if (choice === "suggestion" && (C.suggested[row] === NONE || C.suggested[row] === C.original[row])) return say("There is no other suggestion for this row.");
  decide(row, choice, other);
  const label = decisions.get(row).label;
  say(choice === "exclude" ? `Row ${row}: excluded.` : `Row ${row}: ${label}.`);
  if (!step(1, true)) { renderPanel(); say(`Row ${row} decided. This was the last of the list.`); }
}

function choices(row) {
  const found = decisions.get(row), suggested = C.suggested[row];
  const button = (choice, key, attributes, ...text) => el("button", {
    type: "button", "data-choice": choice, "aria-pressed": found ? found.choice === choice : false, "aria-keyshortcuts": key,
    on: { click: () => choose(choice) }, ...attributes,
  }, ...text, " ", el("kbd", { "aria-hidden": true }, key));
  const select = el("select", { id: "other", "aria-label": "Other class" }, D.classes.map((text, number) => el("option", { value: number }, text)));
  if (found && found.choice === "other") select.value = String(D.classes.indexOf(found.label));
  const set = () => { choose("other", D.classes[Number(select.value)]); };
  select.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); set(); select.blur(); } });
  return el("div", { class: "choices", role: "group", "aria-label": "Decide" },
    C.original[row] !== NONE && button("keep", "K", {}, "Keep ", name(className(C.original[row]))),
    suggested !== NONE && suggested !== C.original[row] && button("suggestion", "S", {}, "Take ", name(className(suggested))),
    el("span", { class: "other" }, select, button("other", "O", { on: { click: set } }, "Set")),
    button("exclude", "X", {}, "Exclude"),
    el("button", { type: "button", "aria-keyshortcuts": "N", on: { click: () => step(1) } }, "Skip ", el("kbd", { "aria-hidden": true }, "N")));
}

function bars(pairs, most, form) {
  return el("div", { class: "bars" }, pairs.flatMap(([text, value]) => [
    name(text, { class: "cut" }), el("span", {}, el("i", { style: { width: `${Math.min(100, (100 * value) / most)}%` } })), el("span", { class: "n" }, form(value))]));
}

function neighbors(title, label, pairs) {
  return [el("h4", {}, title, " ", name(label)), pairs.length === 0 ? el("p", { class: "small" }, "There are none among the rows that were looked through.")
    : el("ul", { class: "near" }, pairs.map(([row, distance]) => el("li", {}, snippet(others[row], row, ""),
      el("button", { type: "button", class: "link cut", on: { click: () => select(row) } }, name(rowName(row))),
      el("span", { class: "soft" }, `distance ${distance.toFixed(2)}`, quality(row) !== null && quality(row) < 0.5 && " (doubtful, too)"))))];
}

function trajectoryChart(values) {
  const width = 380, height = 90, left = 40, x = (i) => left + ((width - left - 8) * i) / Math.max(values.length - 1, 1), y = (v) => 8 + (height - 26) * (1 - v);
  const points = values.map((v, i) => (v === null ? null : `${x(i).toFixed(1)},${y(v).toFixed(1)}`)).filter(Boolean);
  const last = values.filter((v) => v !== null).at(-1);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Probability of the original label, from ${percent(values.find((v) => v !== null))} at the start to ${percent(last)} at the end of training` },
    ...[0, 0.5, 1].flatMap((v) => [svg("line", { x1: left, x2: width - 8, y1: y(v), y2: y(v), class: "axis" }), svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, `${100 * v}%`)]),
    svg("polyline", { points: points.join(" "), fill: "none", stroke: "var(--c0)", "stroke-width": 2.5 }),
    svg("text", { x: left, y: height - 4 }, "start of training"), svg("text", { x: width - 8, y: height - 4, "text-anchor": "end" }, "end"));
}

function why(row, entry) {
  const original = className(C.original[row]), suggested = className(C.suggested[row]), differs = C.suggested[row] !== NONE && suggested !== original;
  const lids = [[original, entry.lid.original], ...(differs ? [[suggested, entry.lid.suggested]] : [])].filter(([, value]) => value !== null);
  const total = entry.around.reduce((sum, [, number]) => sum + number, 0);
  return el("details", { open: true, id: "why" }, el("summary", {}, el("strong", {}, "Why")),
    total > 0 && [el("h4", {}, `Labels of its ${total} nearest rows`), bars(entry.around.slice(0, 5), total, String)],
    neighbors("Nearest rows with the original label", original, entry.near.original),
    differs && neighbors("Nearest rows with the suggested label", suggested, entry.near.suggested),
    lids.length > 0 && [el("h4", {}, "LID among the rows of a label (lower fits better)"), bars(lids, Math.max(...lids.map(([, v]) => v)) || 1, (v) => v.toFixed(1))],
    C.lid[row] !== null && el("p", { class: "small soft" }, `LID with the original label, mean over the training: ${C.lid[row]}` + (D.median_lid === null ? "" : `; half of all rows are below ${D.median_lid}`)),
    entry.trajectory.length > 1 && [el("h4", {}, "Probability of the original label during training"), trajectoryChart(entry.trajectory)],
    entry.votes.length > 0 && [el("h4", {}, "Who sees what"), el("table", {}, el("tbody", {}, entry.votes.map(([who, label]) => el("tr", {}, el("td", {}, who), el("td", {}, name(label), label === original ? " (as original)" : label === suggested ? " (as suggested)" : "")))))]);
}

function renderPanel() {
  const row = view.selected, panel = $("panel");
  if (row === null) { panel.replaceChildren(el("p", { class: "soft" }, "Nothing is selected.")); return; }
  const entry = evidence.get(row), original = className(C.original[row]), reason = D.reasons[C.reason[row]];
  panel.replaceChildren(
    el("h3", { class: "cut" }, `Row ${row}`, D.names ? ": " : "", D.names ? name(D.names[row]) : ""),
    choices(row),
    el("div", { class: "shown" }, big(entry ? entry.shown : null, row, original, className(C.suggested[row]))),
    labelsOf(row), reason ? el("p", {}, WHY[reason] || name(reason)) : "", entry ? why(row, entry) : "");
  panel.scrollTop = 0;
}
