// The search through all texts: memories, replies, what was recalled, sections.

const MOST_HITS = 200;
const BESIDE = 50;

// The first hits.
async function searchAll(page, query, progress) {
  const hits = [];
  for (const [at, line] of page.index.groups.entries()) {
    if (hits.length >= MOST_HITS || page.query !== query) break;
    const group = await readGroup(line);
    for (const hit of hitsOf(group, at, query)) {
      if (hits.push(hit) === MOST_HITS) break;
    }
    if (at % 25 === 24) {
      progress(at + 1, hits.length);
      await new Promise(requestAnimationFrame);
    }
  }
  return hits;
}

// The first hit in each turn of each sibling; a section counts once for all siblings that read it.
function* hitsOf(group, at, query) {
  const read = new Set();
  for (const [which, sibling] of group.siblings.entries()) {
    for (const turn of sibling.turns) {
      const sections = turn.shown.filter((number) => !read.has(`${sibling.document} ${number}`));
      sections.forEach((number) => read.add(`${sibling.document} ${number}`));
      const texts = [["memory", turn.memory], ["reply", turn.reply], ["recalled", turn.recalled],
        ...sections.map((number) => ["section", sibling.sections[number]?.text ?? ""]), ["prompt", turn.prompt]];
      for (const [what, text] of texts) {
        const place = text.toLowerCase().indexOf(query);
        if (place >= 0) {
          const around = text.slice(Math.max(0, place - BESIDE), place + query.length + BESIDE);
          yield { group: at, sibling: which, turn: turn.number, what, text: around };
          break;
        }
      }
    }
  }
}

function drawHits(page, hits, query) {
  return hits.map((hit) => {
    const line = page.index.groups[hit.group];
    const where = [page.index.places[line.place].label, `question ${nameOf(line)}`,
      `sample ${line.siblings[hit.sibling].sample}`, `turn ${hit.turn + 1}: ${hit.what}`].join(", ");
    return make("a", { class: "hit-line", href: page.address({ ...hit, view: "turns" }) },
      make("span", { class: "id" }, where),
      make("span", { class: "asked", dir: "auto" }, layered(hit.text, [hitSpans(hit.text, query)])));
  });
}
