// The selected row: what it looks like, the possible decisions, and the evidence.
const WHY = {
  wrong: "Another class is more likely than the original label.",
  ambiguous: "Two classes fit this row about equally well.",
  outlier: "No class fits this row.",
  duplicate: "An identical row has a different label.",
};

function big(shown, row, original, suggested) {
  if (!shown) return el("p", { class: "soft" }, "Pictures and evidence are stored for the most doubtful rows only.");
  if (shown.image) return picture(shown.image, `Picture of ${rowName(row)}`);
  if (shown.text !== undefined) return el("p", { dir: "auto" }, shown.text);
  const typical = D.evidence.typical || {}, of = (column, label) => (typical[column] || {})[label] ?? "";
  const both = suggested !== original && suggested !== "none";
  const head = el("tr", {}, el("th", {}, "column"), el("th", {}, "this row"), el("th", {}, "typical for ", name(original)), both && el("th", {}, "typical for ", name(suggested)));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Features" }, el("table", {}, el("thead", {}, head), el("tbody", {}, shown.features.map(([column, value]) =>
    el("tr", {}, el("th", {}, name(column)), el("td", {}, name(value)), el("td", {}, name(of(column, original))), both && el("td", {}, name(of(column, suggested))))))));
}

function labelsOf(row) {
  const predicted = C.predicted[row], suggested = C.suggested[row], likely = (value) => (value === null ? "" : `${percent(value)} likely right`);
  const line = (term, value, number) => [el("dt", {}, term), el("dd", {}, name(value)), el("dd", { class: "n" }, number)];
  return el("dl", { class: "labels" },
    line("original", className(C.original[row]), likely(quality(row))),
    predicted !== NONE && line("predicted", className(predicted), ""),
    suggested !== NONE && line("suggested", className(suggested), likely(confidence(row))),
    line("now", className(C.label[row]), D.actions[C.action[row]]),
    C.truth && C.truth[row] !== NONE && line("truth", className(C.truth[row]), C.truth[row] === C.original[row] ? "original label is right" : "original label is wrong"));
}

function choose(choice, other) {
  const row = view.selected;
  if (row === null) return;
  if (choice === "keep" && C.original[row] === NONE) return say("This row has no original label to keep.");
  if (choice === "suggestion" && (C.suggested[row] === NONE || C.suggested[row] === C.original[row])) return say("No other label is suggested for this row.");
  decide(row, choice, other);
  const label = decisions.get(row).label;
  say(choice === "exclude" ? `Row ${row}: excluded.` : `Row ${row}: ${label}.`);
  if (!step(1, true)) { renderPanel(); say(`Row ${row} decided. It was the last row in the list.`); }
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
    suggested !== NONE && suggested !== C.original[row] && button("suggestion", "S", {}, "Use ", name(className(suggested))),
    el("span", { class: "other" }, select, button("other", "O", { on: { click: set } }, "Set")),
    button("exclude", "X", {}, "Exclude"),
    el("button", { type: "button", "aria-keyshortcuts": "N", on: { click: () => step(1) } }, "Skip ", el("kbd", { "aria-hidden": true }, "N")));
}

function bars(pairs, most, form) {
  return el("div", { class: "bars" }, pairs.flatMap(([text, value]) => [
    name(text, { class: "cut" }), el("span", {}, el("i", { style: { width: `${Math.min(100, (100 * value) / most)}%` } })), el("span", { class: "n" }, form(value))]));
}

function neighbors(title, label, pairs) {
  return [el("h4", {}, title, " ", name(label)), pairs.length === 0 ? el("p", { class: "small" }, "None were found among the rows that were searched.")
    : el("ul", { class: "near" }, pairs.map(([row, distance]) => el("li", {}, snippet(others[row], row, ""),
      el("button", { type: "button", class: "link cut", on: { click: () => select(row) } }, name(rowName(row))),
      el("span", { class: "soft" }, `distance ${distance.toFixed(2)}`, quality(row) !== null && quality(row) < 0.5 && " (also doubtful)"))))];
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
  const original = className(C.original[row]), suggested = className(C.suggested[row]), alternative = entry.alternative;
  const lids = [[original, entry.lid.original], [alternative, entry.lid.alternative]].filter(([, value]) => value !== null);
  const sameAs = (label) => (label === original ? " (same as original)" : label === suggested ? " (same as suggested)" : "");
  const total = entry.around.reduce((sum, [, number]) => sum + number, 0);
  return el("details", { open: true, id: "why" }, el("summary", {}, el("strong", {}, "Evidence")),
    total > 0 && [el("h4", {}, `Labels of the ${total} nearest rows`), bars(entry.around.slice(0, 5), total, String)],
    neighbors("Nearest rows with the original label", original, entry.near.original),
    neighbors(alternative === suggested ? "Nearest rows with the suggested label" : "Nearest rows with the most likely other label", alternative, entry.near.alternative),
    lids.length > 0 && [el("h4", {}, "LID among the rows with each label (lower is a better fit)"), bars(lids, Math.max(...lids.map(([, v]) => v)) || 1, (v) => v.toFixed(1))],
    C.lid[row] !== null && el("p", { class: "small soft" }, `LID with the original label, mean over training: ${C.lid[row]}` + (D.median_lid === null ? "" : `; the median of all rows is ${D.median_lid}`)),
    entry.trajectory.length > 1 && [el("h4", {}, "Trajectory: probability of the original label during training"), trajectoryChart(entry.trajectory)],
    entry.votes.length > 0 && [el("h4", {}, "Votes"), el("table", {}, el("tbody", {}, entry.votes.map(([voter, label]) => el("tr", {}, el("td", {}, voter), el("td", {}, name(label), sameAs(label))))))]);
}

function renderPanel() {
  const row = view.selected, panel = $("panel");
  if (row === null) { panel.replaceChildren(el("p", { class: "soft" }, "No row is selected.")); return; }
  const entry = evidence.get(row), original = className(C.original[row]), reason = D.reasons[C.reason[row]];
  panel.replaceChildren(
    el("h3", { class: "cut" }, `Row ${row}`, D.names ? ": " : "", D.names ? name(D.names[row]) : ""),
    choices(row),
    el("div", { class: "shown" }, big(entry ? entry.shown : null, row, original, className(C.suggested[row]))),
    labelsOf(row), reason ? el("p", {}, WHY[reason] || name(reason)) : "", entry ? why(row, entry) : "");
  panel.scrollTop = 0;
}
