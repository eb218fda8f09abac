"""A small stand-in for HotpotQA's raw file, in the official shape and in FlashRAG's, with what is awkward in it."""

import random

OWN = 10
AWKWARD = [
    ['She wrote "Go!', '" is.', " Then she left."],  # no blank before the closing quotes
    ["Ünïcode 東京 🙂.", " \u2028End."], [], ["Line one.\n", "Line two."],
]


def raw_rows(count):
    """``count`` made-up questions of ten paragraphs, two of them evidence.

    Neighbours share a paragraph, and every fifth names one of its paragraphs twice as evidence.
    """
    return list(map(_row, range(count)))


def _row(number):
    rng = random.Random(number)
    titles = [f"Title {number * (OWN - 1) + k}" for k in range(OWN)]
    texts = [[f"{title} is.", f" It is number {title.split()[1]}."] for title in titles]
    texts[3] = AWKWARD[number % len(AWKWARD)]
    first, second = rng.sample([0, 1, 2, *range(4, OWN)], 2)
    facts = [[titles[first], 0], [titles[second], 1]] + [[titles[first], 1]] * (number % 5 == 0)
    return {"_id": f"{number:024x}", "question": f"Who is {number}?", "answer": f"number {titles[second].split()[1]}",
            "type": "bridge", "level": "hard", "supporting_facts": facts,
            "context": [list(paragraph) for paragraph in zip(titles, texts, strict=True)]}


def flashrag(row):
    """A row of the original file as FlashRAG has it."""
    metadata = {"type": row["type"], "level": row["level"]}
    for name, columns in (("supporting_facts", ("title", "sent_id")), ("context", ("title", "sentences"))):
        metadata[name] = dict(zip(columns, zip(*row[name], strict=True), strict=True))
    return {"id": row["_id"], "question": row["question"], "golden_answers": [row["answer"]], "metadata": metadata}


def split_documents(context):
    """The documents of a text, without their numbers."""
    parts = ("\n\n" + context).split("\n\nDocument ")[1:]
    return [part.split(":\n", 1)[1] for part in parts]
