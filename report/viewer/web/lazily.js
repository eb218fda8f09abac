// Turns are drawn as they come near the window, so many at a time that the window stays usable.
//
// Work is characters: those of all texts that a turn shows. A comparison of two memories is bounded by their length as
// well, so this bounds it too. Where all turns together are little work, all are there at once.

const AT_ONCE = 300_000;
const FEW = 30;
const BESIDE_SHOWN = 6;
// Turns that have a place in the page at a time; a link leads to those before and behind.
const MOST_TURNS = 5000;

class Lazily {
  // `elements` are those of the turns from `first` on; `fill` puts into an element what its turn shows.
  constructor(elements, first, fill, workOf) {
    Object.assign(this, { elements, first, fill, workOf, filled: new Set() });
    const every = elements.map((_, at) => at);
    const all = elements.length <= FEW && every.reduce((sum, at) => sum + this.work(at), 0) <= AT_ONCE;
    this.fillSome(all ? every : every.slice(0, BESIDE_SHOWN));
    this.watch(every.filter((at) => !this.filled.has(at)));
  }

  work(at) { return this.workOf(this.first + at); }

  // The first of these that is not there yet, and others while there is room; gives those that are to wait.
  fillSome(places) {
    let room = AT_ONCE;
    return places.filter((at) => !this.filled.has(at)).filter((at, which) => {
      room -= this.work(at);
      if (which && room < 0) return true;
      this.filled.add(at);
      this.elements[at].append(...attempted(() => this.fill(this.first + at)));
      return false;
    });
  }

  watch(places) {
    const numbers = new Map(places.map((at) => [this.elements[at], at]));
    const near = (seen) => {
      const here = seen.filter((one) => one.isIntersecting).map((one) => one.target);
      const waiting = this.fillSome(here.map((element) => numbers.get(element)));
      here.forEach((element) => watch.unobserve(element));
      // Asked again, they may lie far away: what was drawn above them takes more room than before.
      waiting.forEach((at) => watch.observe(this.elements[at]));
    };
    const watch = new IntersectionObserver(near, { rootMargin: "800px" });
    numbers.forEach((_, element) => watch.observe(element));
  }

  // The element of a turn, filled. Those beside it too: what is drawn later above it would push it away.
  reveal(turn) {
    const at = turn - this.first;
    const beside = Array.from({ length: BESIDE_SHOWN }, (_, step) => [at - step - 1, at + step + 1]);
    this.fillSome([at, ...beside.flat()].filter((one) => one in this.elements));
    return this.elements[at];
  }

  // The first turn that is not wholly above the line `top` of the window, and where it begins; null without one.
  seen(top) {
    let [low, high] = [0, this.elements.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.elements[middle].getBoundingClientRect().bottom > top) high = middle;
      else low = middle + 1;
    }
    return low in this.elements
      ? { turn: this.first + low, top: this.elements[low].getBoundingClientRect().top } : null;
  }
}

// The numbers of the turns that have a place beside the one that is shown.
function turnsBeside(turn, count) {
  const first = firstBeside(turn);
  return Array.from({ length: Math.max(0, Math.min(MOST_TURNS, count - first)) }, (_, at) => first + at);
}

const firstBeside = (turn) => Math.floor((turn ?? 0) / MOST_TURNS) * MOST_TURNS;

// Where not all have a place, which do, and the way to the others.
function otherTurns(page, numbers, count) {
  if (numbers.length === count) return [];
  const [first, behind] = [numbers[0], numbers[0] + numbers.length];
  const link = (turn, text) => make("a", { href: page.address({ turn }) }, text);
  return [make("p", { class: "tools" }, `turns ${whole(first + 1)} to ${whole(behind)} of ${whole(count)}`,
    first > 0 ? link(first - MOST_TURNS, "those before") : null, behind < count ? link(behind, "those behind") : null)];
}

// What is made, or a notice in its place.
function attempted(make) {
  try {
    return make();
  } catch (error) {
    return [notDrawn(error)];
  }
}
