// How many wrong labels the next N rows should hold. The run estimates how likely each label is wrong; the decisions
// so far shift the log odds of all rows by one number b, which has a normal prior with mean 0 and deviation 1.
const odds = (row) => { const p = Math.min(Math.max(1 - quality(row), 0.0005), 0.9995); return Math.log(p / (1 - p)); };
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
let wanted = 100;

function shift() {
  const rows = [...decisions].filter(([row]) => C.quality[row] !== null).map(([row, found]) => [odds(row), found.choice === "exclude" || found.label !== className(C.original[row]) ? 1 : 0]);
  let b = 0, precision = 1;
  for (let round = 0; round < 30; round += 1) {
    let slope = -b;
    precision = 1;
    for (const [x, wrong] of rows) { const p = sigmoid(x + b); slope += wrong - p; precision += p * (1 - p); }
    b += Math.max(-1, Math.min(1, slope / precision));
  }
  return { b, deviation: 1 / Math.sqrt(precision), rows: rows.length };
}

function plan(rows) {
  const { b, deviation, rows: seen } = shift();
  const sums = [[0], [0], [0]], spread = [0], undone = [0];
  rows.forEach((row) => {
    const x = odds(row), p = sigmoid(x + b);
    [x + b, x + b - 2 * deviation, x + b + 2 * deviation].forEach((value, i) => sums[i].push(sums[i].at(-1) + sigmoid(value)));
    spread.push(spread.at(-1) + p * (1 - p));
    undone.push(undone.at(-1) + (C.label[row] === C.original[row] ? p : 0));
  });
  const band = (n, side) => Math.min(n, Math.max(0, sums[0][n] + Math.sign(side) * Math.hypot(sums[side > 0 ? 2 : 1][n] - sums[0][n], 2 * Math.sqrt(spread[n]))));
  return { mean: sums[0], low: (n) => band(n, -1), high: (n) => band(n, 1), undone, seen };
}

function planChart(found, n, rows) {
  const width = 520, height = 190, left = 46, most = Math.max(found.high(rows), 1);
  const x = (i) => left + ((width - left - 10) * i) / rows, y = (v) => 10 + (height - 34) * (1 - v / most);
  const places = Array.from({ length: 81 }, (_, i) => Math.round((rows * i) / 80));
  const line = (value) => places.map((i) => `${x(i).toFixed(1)},${y(value(i)).toFixed(1)}`);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Wrong labels found by number of rows reviewed: up to ${count(found.mean[rows])} in ${count(rows)} rows` },
    ...[0, 0.5, 1].flatMap((s) => [svg("line", { x1: left, x2: width - 10, y1: y(s * most), y2: y(s * most), class: "axis" }), svg("text", { x: left - 6, y: y(s * most) + 4, "text-anchor": "end" }, count(s * most))]),
    svg("polygon", { points: [...line(found.low), ...line(found.high).reverse()].join(" "), fill: "var(--c0)", opacity: 0.2 }),
    svg("polyline", { points: line((i) => found.mean[i]).join(" "), fill: "none", stroke: "var(--c0)", "stroke-width": 2.5 }),
    svg("line", { x1: x(n), x2: x(n), y1: 10, y2: height - 24, stroke: "var(--c1)", "stroke-width": 2, "stroke-dasharray": "4 3" }),
    svg("text", { x: left, y: height - 6 }, "0 rows"), svg("text", { x: width - 10, y: height - 6, "text-anchor": "end" }, `${count(rows)} rows`));
}

function renderPlanner() {
  const rows = view.rows.filter((row) => !isDecided(row) && C.quality[row] !== null), box = $("planner");
  const head = el("h3", {}, "How many rows should you review?");
  if (!rows.length) { box.replaceChildren(head, el("p", {}, "Every row in this list is decided.")); return; }
  const found = plan(rows), n = Math.max(1, Math.min(wanted, rows.length)), all = found.mean[rows.length];
  const reach = found.mean.findIndex((value) => value >= 0.8 * all);
  const input = el("input", { type: "number", id: "budget", min: 1, max: rows.length, value: n, on: { change: () => { wanted = Math.max(1, Math.round(Number(input.value)) || 1); renderPlanner(); $("budget").focus(); } } });
  const refined = found.seen === 0 ? "This is the estimate of the run. Your decisions will refine it." : `Refined by ${count(found.seen)} of your decisions.`;
  box.replaceChildren(head, el("div", { class: "plan" }, el("div", {},
    el("p", {}, el("label", {}, "If you review the next ", input, " rows of the list above,")),
    el("p", {}, el("strong", { id: "plan-mean" }, `you should find about ${count(found.mean[n])} wrong labels`), el("span", { id: "plan-band" }, ` (between ${count(found.low(n))} and ${count(found.high(n))})`), `; the run itself did not change ${count(found.undone[n])} of them.`),
    el("p", {}, `The first ${count(reach)} of ${countOf(rows.length, "row")} should hold 80% of the wrong labels in this list.`),
    el("p", { class: "soft small", id: "plan-learned" }, refined)),
  planChart(found, n, rows.length)));
}
