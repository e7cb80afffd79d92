// Figures about the whole data set.
const COLORS = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)"];

function legend(texts, colors) {
  return el("div", { class: "legend" }, texts.map((text, i) => el("span", {}, el("i", { style: { background: colors[i] } }), text)));
}

function lidChart(found) {
  const colors = Object.keys(found.groups).length === 2 ? COLORS : ["var(--c0)", "var(--c3)", "var(--c2)", "var(--c1)"];
  const width = 560, height = 230, left = 40, bins = found.edges.length - 1;
  const groups = Object.entries(found.groups).map(([text, counts]) => ({ text, counts, total: counts.reduce((a, b) => a + b, 0) }));
  const drawn = groups.filter((g) => g.total >= found.min_rows);
  const most = Math.max(...drawn.flatMap((g) => g.counts.map((c) => c / g.total)), 1e-9);
  const x = (i) => left + ((width - left - 10) * i) / bins, y = (v) => 10 + (height - 44) * (1 - v / most);
  const shapes = groups.map((g, number) => {
    if (g.total < found.min_rows) return svg("g", {});
    const points = g.counts.flatMap((c, i) => [`${x(i).toFixed(1)},${y(c / g.total).toFixed(1)}`, `${x(i + 1).toFixed(1)},${y(c / g.total).toFixed(1)}`]);
    return svg("polygon", { points: [`${left},${y(0)}`, ...points, `${x(bins)},${y(0)}`].join(" "), fill: colors[number], "fill-opacity": 0.22, stroke: colors[number], "stroke-width": 1.8 });
  });
  const ticks = [0, bins / 3, (2 * bins) / 3, bins].map(Math.round);
  return el("figure", {}, el("h3", {}, "LID of kept and changed labels"),
    legend(groups.map((g) => `${g.text} (${count(g.total)}${g.total && g.total < found.min_rows ? ", too few to draw" : ""})`), colors),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Distribution of LID for ${groups.map((g) => g.text).join(", ")}` },
      svg("line", { x1: left, x2: width - 10, y1: y(0), y2: y(0), class: "axis" }), ...shapes,
      ...[0, most].map((v) => svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, `${(100 * v).toFixed(0)}%`)),
      ...ticks.map((i) => svg("text", { x: x(i), y: height - 18, "text-anchor": i === bins ? "end" : "middle" }, found.edges[i].toFixed(1))),
      svg("text", { x: width / 2, y: height - 3, "text-anchor": "middle" }, "LID with the original label, mean over training (log scale)")),
    el("figcaption", {}, "The share of each group. A high LID means that a row does not fit well among the rows with its label. The last bin holds all higher values, too."));
}

function heatMap(found) {
  const most = Math.max(1, ...found.counts.flatMap((line, i) => line.filter((_, j) => j !== i)));
  const cell = (number, i, j) => {
    if (!number) return el("td", {});
    if (i === j) return el("td", { class: "same" }, count(number));
    const [a, b] = [found.classes[i], found.classes[j]], share = 0.12 + (0.38 * number) / most;
    return el("td", { style: { background: `rgb(var(--heat) / ${share.toFixed(2)})` } },
      el("button", { type: "button", "aria-label": `${countOf(number, "row")} from ${a} to ${b}: show`, on: { click: () => showPair(a, b) } }, count(number)));
  };
  return el("figure", {}, el("h3", {}, "From original to current labels"),
    el("div", { class: "heat", tabindex: 0, role: "region", "aria-label": "Heat map of changed labels" }, el("table", {},
      el("thead", {}, el("tr", {}, el("th", {}, "original ↓", el("br"), "now →"), found.classes.map((text) => el("th", { scope: "col" }, name(text))))),
      el("tbody", {}, found.counts.map((line, i) => el("tr", {}, el("th", { scope: "row" }, name(found.classes[i])), line.map((number, j) => cell(number, i, j))))))),
    el("figcaption", {}, "The number of rows. The diagonal holds rows whose label did not change. Click a number to see its rows.", found.left_out ? ` Only the ${found.classes.length} classes with the most changes are shown; ${found.left_out} are left out.` : ""));
}

function showPair(original, suggested) {
  $("filters").reset();
  $("f-original").value = String(D.classes.indexOf(original));
  $("f-suggested").value = String(D.classes.indexOf(suggested));
  refilter();
  $("review").scrollIntoView();
}

function classTable(lines) {
  const truth = "right_before" in (lines[0] || {});
  const heads = ["class", "rows before", "expected wrong", ...(truth ? [] : [""]), "moved out", "moved in", "rows now", ...(truth ? ["right before", "right now"] : [])];
  const body = lines.map((line) => {
    const share = line.before ? line.expected_wrong / line.before : 0;
    return el("tr", {}, el("th", { scope: "row" }, name(line.class, { class: "cut" })), [count(line.before), `${count(line.expected_wrong)} (${percent(share)})`].map((t) => el("td", { class: "n" }, t)),
      !truth && el("td", {}, el("span", { class: "meter", style: { width: "5rem" } }, el("i", { style: { width: `${100 * Math.min(share, 1)}%` } }))),
      [count(line.moved_out), count(line.moved_in), count(line.after), ...(truth ? [percent(line.right_before), percent(line.right_after)] : [])].map((t) => el("td", { class: "n" }, t)));
  });
  return el("figure", {}, el("h3", {}, "Noise and changes in each class"), el("div", { class: "classes", tabindex: 0, role: "region", "aria-label": "Table of classes" },
    el("table", {}, el("thead", {}, el("tr", {}, heads.map((text, i) => el("th", { scope: "col", class: i && "n" }, text)))), el("tbody", {}, body))),
  el("figcaption", {}, "Expected wrong: how many original labels of the class are probably wrong, by the estimate of the run.", truth ? " Right: the share of the rows with this label for which it is the true one." : ""));
}

const CURVES = {
  loss: "training loss", test_accuracy: "accuracy on test rows", label_accuracy: "share of right labels", lid_auroc: "detection of wrong labels by LID (AUROC)",
  labels_changed: "labels changed",
};

function curve(key, values) {
  const width = 260, height = 130, left = 40, numbers = values.filter((v) => v !== null), shared = ["test_accuracy", "label_accuracy", "lid_auroc"].includes(key);
  const low = shared ? Math.min(0.5, ...numbers) : 0, high = shared ? 1 : Math.max(...numbers, 1e-9);
  const x = (i) => left + ((width - left - 8) * i) / Math.max(values.length - 1, 1), y = (v) => 8 + (height - 28) * (1 - (v - low) / (high - low || 1));
  const form = (v) => (shared ? percent(v) : v >= 100 ? count(v) : v.toFixed(v < 10 && !Number.isInteger(v) ? 2 : 0));
  return el("div", {}, el("h4", {}, CURVES[key], " ", el("span", {}, `(last: ${form(numbers.at(-1))})`)),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${CURVES[key]} over ${values.length} epochs, from ${form(numbers[0])} to ${form(numbers.at(-1))}` },
      ...[low, high].flatMap((v) => [svg("line", { x1: left, x2: width - 8, y1: y(v), y2: y(v), class: "axis" }), svg("text", { x: left - 5, y: y(v) + 4, "text-anchor": "end" }, shared ? `${Math.round(100 * v)}%` : form(v))]),
      svg("polyline", { points: values.map((v, i) => (v === null ? null : `${x(i).toFixed(1)},${y(v).toFixed(1)}`)).filter(Boolean).join(" "), fill: "none", stroke: "var(--c0)", "stroke-width": 2 }),
      svg("text", { x: left, y: height - 4 }, "epoch 1"), svg("text", { x: width - 8, y: height - 4, "text-anchor": "end" }, String(values.length))));
}

function renderFigures() {
  const found = D.figures, shown = [];
  if (found.lid) shown.push(lidChart(found.lid));
  shown.push(heatMap(found.confusion), classTable(found.per_class));
  const keys = Object.keys(found.curves);
  if (keys.length) shown.push(el("figure", {}, el("h3", {}, "Training"), el("div", { class: "multiples" }, keys.map((key) => curve(key, found.curves[key])))));
  $("charts").replaceChildren(...shown);
}
