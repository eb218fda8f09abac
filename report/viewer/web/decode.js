// Parts of the page: base64 of deflated JSON, decoded when asked for, and kept.

const decoded = new Map();

function part(id) {
  if (!decoded.has(id)) decoded.set(id, inflate(document.getElementById(id).textContent));
  return decoded.get(id);
}

async function inflate(base64) {
  const characters = atob(base64);
  const bytes = new Uint8Array(characters.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = characters.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// A group with its texts in their places: what the index says of each sibling, and its turns.
async function readGroup(line) {
  const [texts, tokens, ...documents] = await Promise.all([
    part(`part${line.texts}`),
    line.tokens === undefined ? null : part(`part${line.tokens}`),
    ...line.documents.map((number) => part(`part${number}`)),
  ]);
  const textOf = (number) => (number < 0 ? "" : texts.strings[number]);
  const sections = documents.map((document) => document.map((text) => ({ text })));
  const standing = new Map();
  const siblings = texts.traces.map((trace, at) => ({
    ...line.siblings[at],
    ...trace,
    standing,
    response: textOf(trace.response),
    sections: sections[line.siblings[at].document] ?? [],
    turns: trace.turns.map((turn, number) => ({
      ...turn,
      number,
      shown: [...new Set(turn.sections)],
      before: textOf(turn.before),
      recalled: textOf(turn.recalled),
      prompt: textOf(turn.prompt),
      reply: textOf(turn.reply),
      memory: textOf(turn.memory),
      tokens: tokens?.[at][number] ?? null,
    })),
  }));
  return { line, siblings };
}
