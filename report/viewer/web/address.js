// The address says what is shown: #rollout=12&question=41&sample=0&turn=3, or length=50; turns count from 1. What an
// address names is found by its own name first, so that each question and each sibling has an address that leads to it.

// A question is called by its id; by its group where the data has none.
const nameOf = (line) => line.question_id || line.group;

function addressOf(index, shown) {
  const line = index.groups[shown.group];
  const place = index.places[line.place];
  const sibling = line.siblings[shown.sibling];
  const fields = new URLSearchParams();
  if (place.rollout !== null) fields.set("rollout", place.rollout);
  if (place.length !== null) fields.set("length", place.length);
  fields.set("question", nameOf(line));
  if (namesAgain(index).has(nameIn(line))) fields.set("group", line.group);
  fields.set("sample", sibling.sample);
  if (samplesAgain(line).has(sibling.sample)) fields.set("sibling", shown.sibling + 1);
  const turns = turnsOf(line, shown);
  if (shown.turn !== null && turns) fields.set("turn", Math.min(shown.turn + 1, turns));
  if (shown.view !== "turns") fields.set("view", shown.view);
  return `#${fields}`;
}

// What comes twice is looked for once, as a list has thousands of addresses.
const namesAgain = (index) => index.namesAgain ??= again(index.groups.map(nameIn));
const samplesAgain = (line) => line.samplesAgain ??= again(line.siblings.map((one) => one.sample));
const nameIn = (line) => `${line.place} ${nameOf(line)}`;

function again(values) {
  const seen = new Set();
  return new Set(values.filter((value) => seen.has(value) || !seen.add(value)));
}

// What an address shows; the first that fits what it names, and what of it is not here.
function shownAt(index, address) {
  const fields = new URLSearchParams(address.replace(/^#/, ""));
  const found = fields.size ? groupAt(index, fields) : firstShown(index);
  const group = Math.max(0, found);
  const line = index.groups[group];
  const number = fields.get("sibling");
  const sample = line.siblings.findIndex((one, at) =>
    String(one.sample) === fields.get("sample") && (number === null || String(at + 1) === number));
  const shown = {
    group,
    sibling: Math.max(0, sample),
    turn: null,
    view: fields.get("view") === "siblings" ? "siblings" : "turns",
  };
  const asked = fields.get("turn") ?? "";
  if (/^[1-9][0-9]*$/.test(asked) && Number(asked) <= turnsOf(line, shown)) shown.turn = Number(asked) - 1;
  const absent = found < 0 || (fields.has("sample") && sample < 0) || (fields.has("turn") && shown.turn === null);
  return { ...shown, absent: absent ? [...fields].map(([name, value]) => `${name} ${value}`).join(", ") : "" };
}

// Ids first: a group's number may be another question's id.
function groupAt(index, fields) {
  const asked = fields.get("question");
  const fits = (line) => ["rollout", "length"].every((key) =>
    !fields.has(key) || String(index.places[line.place][key]) === fields.get(key)) &&
    (!fields.has("group") || line.group === fields.get("group"));
  const found = index.groups.findIndex((line) => fits(line) && (asked === null || line.question_id === asked));
  return found < 0 ? index.groups.findIndex((line) => fits(line) && line.group === asked) : found;
}

// How many turns can be stepped through: the sibling's, or the longest one's where they stand side by side.
function turnsOf(line, { sibling, view }) {
  return view === "siblings" ? line.siblings.reduce((most, one) => Math.max(most, one.turns), 0)
    : line.siblings[sibling].turns;
}

// Without an address the newest rollout is shown, or the first length.
function firstShown(index) {
  const newest = index.places.reduce((last, place) => Math.max(last, place.rollout ?? -1), -1);
  return index.groups.findIndex((line) => newest < 0 || index.places[line.place].rollout === newest);
}
