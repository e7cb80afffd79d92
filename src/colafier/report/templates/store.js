// The user's decisions: stored in the browser under the data's fingerprint, saved to and loaded from a file.
const FORMAT = "colafier-decisions-2";
const KEY = `colafier-decisions:${D.fingerprint}`;
const CHOICES = ["keep", "suggestion", "other", "exclude"];
const decisions = new Map();
const past = [];
const watchers = [];
let kept = true;

const isDecided = (row) => decisions.has(row) || row in D.applied;  // on this page, or in an earlier review
const now = () => new Date().toISOString().replace(/\.\d+Z$/, "Z");

function changed(row) {
  try {
    localStorage.setItem(KEY, JSON.stringify([...decisions]));
    kept = true;
  } catch {
    kept = false;
  }
  $("storage-warning").hidden = kept;
  watchers.forEach((watch) => watch(row));
}

function labelOf(row, choice, other) {
  if (choice === "keep") return className(C.original[row]);
  if (choice === "suggestion") return className(C.suggested[row]);
  return choice === "other" ? other : null;
}

function decide(row, choice, other) {
  past.push([row, decisions.get(row)]);
  decisions.set(row, { choice, label: labelOf(row, choice, other), at: now() });
  changed(row);
}

function undo() {
  if (!past.length) return null;
  const [row, before] = past.pop();
  if (before) decisions.set(row, before);
  else decisions.delete(row);
  changed(row);
  return row;
}

function sound(row, found) {
  if (!Number.isInteger(row) || row < 0 || row >= D.rows || !found || !CHOICES.includes(found.choice)) return false;
  if (found.choice === "exclude") return found.label === null;
  return D.classes.includes(found.label);
}

function restore() {
  let stored = [];
  try {
    stored = JSON.parse(localStorage.getItem(KEY) || "[]");
    localStorage.setItem(`${KEY}:try`, "1");
    localStorage.removeItem(`${KEY}:try`);
  } catch (error) {
    kept = error instanceof SyntaxError;
  }
  $("storage-warning").hidden = kept;
  decisions.clear();
  past.length = 0;
  if (Array.isArray(stored)) stored.forEach((entry) => {
    if (Array.isArray(entry) && sound(entry[0], entry[1]) && !(entry[1].at <= D.applied[entry[0]])) decisions.set(entry[0], entry[1]);
  });
  [...decisions].sort((a, b) => (a[1].at < b[1].at ? -1 : 1)).forEach(([row]) => past.push([row, undefined]));
}

function asFile() {
  const list = [...decisions].sort((a, b) => a[0] - b[0]).map(([row, found]) => ({
    row, name: D.names ? D.names[row] : String(row), original: C.original[row] === NONE ? null : className(C.original[row]),
    choice: found.choice, label: found.label, at: found.at,
  }));
  return { format: FORMAT, fingerprint: D.fingerprint, rows: D.rows, saved: now(), decisions: list };
}

function save() {
  const content = JSON.stringify(asFile(), null, 1) + "\n";
  const address = URL.createObjectURL(new Blob([content], { type: "application/json" }));
  const link = el("a", { href: address, download: "decisions.json" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
  say(`${countOf(decisions.size, "decision")} saved. Next, run: colafier apply OUT decisions.json`);
}

// The newer of two decisions counts; a file about other data is refused as a whole.
function take(text) {
  let file;
  try { file = JSON.parse(text); } catch { return "This file is not JSON. Choose a decisions.json that a report saved."; }
  if (!file || file.format !== FORMAT || !Array.isArray(file.decisions)) return "This file does not hold decisions in the current format. Choose a decisions.json that a report saved.";
  if (file.fingerprint !== D.fingerprint || file.rows !== D.rows) return "These decisions were made for another data set. Nothing was loaded.";
  let taken = 0, refused = 0;
  for (const entry of file.decisions) {
    const found = entry && { choice: entry.choice, label: entry.label, at: String(entry.at) };
    const original = entry && (entry.original === null ? NONE : D.classes.indexOf(entry.original));
    if (!entry || !sound(entry.row, found) || original !== C.original[entry.row]) { refused += 1; continue; }
    const own = decisions.get(entry.row);
    if (own && own.at > found.at) continue;
    if (!own || own.choice !== found.choice || own.label !== found.label) past.push([entry.row, own]);
    decisions.set(entry.row, found);
    taken += 1;
  }
  changed(null);
  return `${countOf(taken, "decision")} loaded.` + (refused ? ` ${countOf(refused, "decision")} skipped: not about rows of this data.` : "");
}
