// The difference of two memories, word by word. Blanks belong to the word before them and are not compared.

const WITHOUT_BLANKS = String.raw`[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]`;
const WORD = new RegExp(
  String.raw`(${WITHOUT_BLANKS}|(?:(?!${WITHOUT_BLANKS})[\p{L}\p{N}\p{M}_])+|[^${BLANK}]|^(?=[${BLANK}]))[${BLANK}]*`,
  "gu");
const MOST_CELLS = 16e6;

// Parts in the order of reading, each with where it starts: removed ones in `before`, others in `after`.
function difference(before, after) {
  const numbers = new Map();
  const old = cutWords(before, numbers);
  const now = cutWords(after, numbers);
  let head = 0;
  while (head < old.length && head < now.length && old[head].key === now[head].key) head++;
  let tail = 0;
  while (tail < Math.min(old.length, now.length) - head && old.at(-1 - tail).key === now.at(-1 - tail).key) tail++;
  const same = [
    ...Array.from({ length: head }, (_, at) => [at, at]),
    ...middle(old.slice(head, old.length - tail), now.slice(head, now.length - tail))
      .map(([i, j]) => [head + i, head + j]),
    ...Array.from({ length: tail }, (_, at) => [old.length - tail + at, now.length - tail + at]),
  ];
  return joined(same, old, now);
}

// Each word's key is a number, alike for alike words.
function cutWords(text, numbers) {
  return [...text.matchAll(WORD)].map(({ 0: whole, 1: word, index: start }) => {
    if (!numbers.has(word)) numbers.set(word, numbers.size);
    return { text: whole, key: numbers.get(word), start };
  });
}

// Pairs of places, the longest common subsequence; none where finding it would take too long. A word that the other
// side has nowhere is in no pair and takes no time.
function middle(old, now) {
  const [i, j] = [placesShared(old, now), placesShared(now, old)];
  if ((i.length + 1) * (j.length + 1) > MOST_CELLS) return [];
  const [left, right] = [Int32Array.from(i, (at) => old[at].key), Int32Array.from(j, (at) => now[at].key)];
  return common(left, right).map(([a, b]) => [i[a], j[b]]);
}

function placesShared(words, others) {
  const keys = new Set(others.map((word) => word.key));
  return words.flatMap((word, at) => (keys.has(word.key) ? [at] : []));
}

function common(left, right) {
  const width = right.length + 1;
  const length = new Uint16Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      const at = i * width + j;
      length[at] = left[i] === right[j]
        ? length[at + width + 1] + 1
        : Math.max(length[at + width], length[at + 1]);
    }
  }
  const pairs = [];
  for (let i = 0, j = 0; i < left.length && j < right.length;) {
    if (left[i] === right[j]) pairs.push([i++, j++]);
    else if (length[(i + 1) * width + j] >= length[i * width + j + 1]) i++;
    else j++;
  }
  return pairs;
}

// Between two words that stayed, first what is gone and then what is new.
function joined(same, old, now) {
  const parts = [];
  const add = (change, words) => words.forEach(({ text, start }) => {
    const last = parts.at(-1);
    if (last?.change === change) last.text += text;
    else parts.push({ change, text, start });
  });
  let [i, j] = [0, 0];
  for (const [ofOld, ofNow] of [...same, [old.length, now.length]]) {
    add("removed", old.slice(i, ofOld));
    add("added", now.slice(j, ofNow));
    add("same", now.slice(ofNow, ofNow + 1));
    [i, j] = [ofOld + 1, ofNow + 1];
  }
  return parts;
}
