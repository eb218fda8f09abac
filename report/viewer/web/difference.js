// The difference of two memories, word by word. Blanks belong to the word before them and are not compared.

const WITHOUT_BLANKS = String.raw`[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]`;
const WORD = new RegExp(
  String.raw`(?:${WITHOUT_BLANKS}|(?:(?!${WITHOUT_BLANKS})[\p{L}\p{N}\p{M}_])+|\S|^(?=\s))\s*`, "gu");
const MOST_CELLS = 16e6;

// Parts in the order of reading, each with where it starts: removed ones in `before`, others in `after`.
function difference(before, after) {
  const old = cutWords(before);
  const now = cutWords(after);
  let head = 0;
  while (head < old.length && head < now.length && old[head].key === now[head].key) head++;
  let tail = 0;
  while (tail < Math.min(old.length, now.length) - head && old.at(-1 - tail).key === now.at(-1 - tail).key) tail++;
  const steps = [
    ...Array(head).fill("same"),
    ...middle(old.slice(head, old.length - tail), now.slice(head, now.length - tail)),
    ...Array(tail).fill("same"),
  ];
  return joined(steps, old, now);
}

function cutWords(text) {
  return [...text.matchAll(WORD)].map((match) => ({ text: match[0], key: match[0].trimEnd(), start: match.index }));
}

// The longest common subsequence; where that would take too long, all of one and then all of the other.
function middle(old, now) {
  const width = now.length + 1;
  if ((old.length + 1) * width > MOST_CELLS || !old.length || !now.length) {
    return [...Array(old.length).fill("removed"), ...Array(now.length).fill("added")];
  }
  const length = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      const at = i * width + j;
      length[at] = old[i].key === now[j].key
        ? length[at + width + 1] + 1
        : Math.max(length[at + width], length[at + 1]);
    }
  }
  const steps = [];
  let i = 0;
  let j = 0;
  while (i < old.length && j < now.length) {
    if (old[i].key === now[j].key) steps.push("same"), i++, j++;
    else if (length[(i + 1) * width + j] >= length[i * width + j + 1]) steps.push("removed"), i++;
    else steps.push("added"), j++;
  }
  return [...steps, ...Array(old.length - i).fill("removed"), ...Array(now.length - j).fill("added")];
}

function joined(steps, old, now) {
  const parts = [];
  let i = 0;
  let j = 0;
  for (const change of steps) {
    const word = change === "removed" ? old[i] : now[j];
    if (change !== "added") i++;
    if (change !== "removed") j++;
    const last = parts.at(-1);
    if (last?.change === change) last.text += word.text;
    else parts.push({ change, text: word.text, start: word.start });
  }
  return parts;
}
