// The page's data: parts are base64 of deflated JSON, decoded when asked for, and kept. And addresses, which say what is
// shown: #rollout=12&question=41&sample=0&turn=3, or length=50; turns count from 1.

const decoded = new Map();

function part(id) {
  if (!decoded.has(id)) decoded.set(id, inflate(document.getElementById(id).textContent));
  return decoded.get(id);
}

async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// A group with its texts in their places: {text, gold}, where gold are the places of accepted answers.
async function readGroup(index, at) {
  const line = index.groups[at];
  const group = await part(`part${at}`);
  const strings = group.strings.map(([text, places]) => ({ text, gold: rangesOf(places) }));
  const siblings = group.siblings.map((sibling, which) => ({
    ...line.siblings[which],
    ...sibling,
    turns: sibling.turns.map((turn, number) => ({
      ...turn,
      number,
      ...Object.fromEntries(["before", "recalled", "prompt", "reply", "memory"].map((name) => [name, strings[turn[name]]])),
      read: turn.sections.map(([section, text]) => [section, strings[text]]),
      changes: turn.changes.map(([change, text, places]) => ({ change, text, gold: rangesOf(places) })),
    })),
  }));
  return { line, siblings };
}

function rangesOf(places) {
  const ranges = [];
  for (let at = 0; at < places.length; at += 2) ranges.push({ start: places[at], end: places[at + 1], name: "gold" });
  return ranges;
}

// A question that a place has twice goes by the number of its group.
function addressOf(index, shown) {
  const line = index.groups[shown.group];
  const place = index.places[line.place];
  const fields = new URLSearchParams();
  if (place.rollout !== null) fields.set("rollout", place.rollout);
  if (place.length !== null) fields.set("length", place.length);
  fields.set("question", index.again.has(`${line.place} ${line.name}`) ? line.group : line.name);
  fields.set("sample", line.siblings[shown.sibling].sample);
  if (shown.turn !== null) fields.set("turn", shown.turn + 1);
  if (shown.view !== "turns") fields.set("view", shown.view);
  return `#${fields}`;
}

// Names of questions that a place has twice.
function namedAgain(groups) {
  const names = groups.map((line) => `${line.place} ${line.name}`);
  return new Set(names.filter((name, at) => names.indexOf(name) !== at));
}

// Whether siblings earned unlike rewards: there is something to learn, for the policy and for who reads.
function isMixed(line) {
  return new Set(line.siblings.filter((one) => !one.failure).map((one) => one.worth)).size > 1;
}

// What an address shows; the first that fits what it names, and what of it is not here. Without an address that is the
// first group with unlike rewards, of the newest rollout if it has one; else the first of that, or of all.

function shownAt(index, address) {
  const fields = new URLSearchParams(address.replace(/^#/, ""));
  if (!fields.size) {
    const newest = index.places.reduce((last, place) => Math.max(last, place.rollout ?? -1), -1);
    const inNewest = (line) => newest < 0 || index.places[line.place].rollout === newest;
    const first = [(line) => inNewest(line) && isMixed(line), isMixed, inNewest]
      .map((wanted) => index.groups.findIndex(wanted)).find((at) => at >= 0);
    return { group: first, sibling: 0, turn: null, view: "turns", absent: "" };
  }
  const asked = fields.get("question");
  const fits = (line) => ["rollout", "length"].every((key) =>
    !fields.has(key) || String(index.places[line.place][key]) === fields.get(key));
  // Ids first: a group's number may be another question's id.
  const found = [(line) => asked === null || line.name === asked, (line) => line.group === asked]
    .map((named) => index.groups.findIndex((line) => fits(line) && named(line))).find((at) => at >= 0) ?? -1;
  const line = index.groups[Math.max(0, found)];
  const sibling = line.siblings.findIndex((one) => String(one.sample) === fields.get("sample"));
  const shown = { group: Math.max(0, found), sibling: line.siblings[sibling] ? sibling : 0, turn: null,
    view: fields.get("view") === "siblings" ? "siblings" : "turns" };
  const turn = Number(fields.get("turn"));
  if (turn >= 1 && turn <= turnsOf(line, shown)) shown.turn = turn - 1;
  const absent = found < 0 || (fields.has("sample") && !line.siblings[sibling]) || (turn && shown.turn === null);
  return { ...shown, absent: absent ? [...fields].map(([name, value]) => `${name} ${value}`).join(", ") : "" };
}

// How many turns can be stepped through: the sibling's, or the longest one's where they stand side by side.
function turnsOf(line, { sibling, view }) {
  const shown = view === "siblings" ? line.siblings : [line.siblings[sibling]];
  return Math.max(...shown.map((one) => one.turns));
}
