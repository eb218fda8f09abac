// The address says what is shown: #rollout=12&question=41&sample=0&turn=3, or length=50; turns count from 1.

function addressOf(index, shown) {
  const line = index.groups[shown.group];
  const place = index.places[line.place];
  const named = line.question_id || line.group;
  const fields = new URLSearchParams();
  if (place.rollout !== null) fields.set("rollout", place.rollout);
  if (place.length !== null) fields.set("length", place.length);
  fields.set("question", named);
  if (index.groups.filter((one) => one.place === line.place && isNamed(one, named)).length > 1) {
    fields.set("group", line.group);
  }
  fields.set("sample", line.siblings[shown.sibling].sample);
  if (shown.turn !== null) fields.set("turn", shown.turn + 1);
  if (shown.view !== "turns") fields.set("view", shown.view);
  return `#${fields}`;
}

const isNamed = (line, name) => line.question_id === name || (!line.question_id && line.group === name);

// What an address shows; the first that fits what it names, and what of it is not here.
function shownAt(index, address) {
  const fields = new URLSearchParams(address.replace(/^#/, ""));
  const fits = (line) => {
    const place = index.places[line.place];
    return ["rollout", "length"].every((key) => !fields.has(key) || String(place[key]) === fields.get(key)) &&
      (!fields.has("question") || isNamed(line, fields.get("question")) || line.group === fields.get("question")) &&
      (!fields.has("group") || line.group === fields.get("group"));
  };
  const found = fields.size ? index.groups.findIndex(fits) : firstShown(index);
  const group = Math.max(0, found);
  const samples = index.groups[group].siblings;
  const sample = samples.findIndex((one) => String(one.sample) === fields.get("sample"));
  const turn = Number.parseInt(fields.get("turn"), 10);
  const absent = found < 0 || (fields.has("sample") && sample < 0);
  return {
    group,
    sibling: Math.max(0, sample),
    turn: Number.isInteger(turn) && turn > 0 ? turn - 1 : null,
    view: fields.get("view") === "siblings" ? "siblings" : "turns",
    absent: absent ? [...fields].map(([name, value]) => `${name} ${value}`).join(", ") : "",
  };
}

// Without an address the newest rollout is shown, or the first length.
function firstShown(index) {
  const newest = Math.max(-1, ...index.places.map((place) => place.rollout ?? -1));
  return index.groups.findIndex((line) => newest < 0 || index.places[line.place].rollout === newest);
}
