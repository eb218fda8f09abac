"""A small stand-in for HotpotQA's raw file, in the official shape and in FlashRAG's, with what is awkward in it."""

import json
import random

from .question_rows import HOTPOTQA_FILE

OWN = 10
AWKWARD = [
    ['She wrote "Go!', '" is.', " Then she left."],  # no blank before the closing quotes
    ["Ünïcode 東京 🙂.", " \u2028End."],
    [],  # no text at all
    ["Line one.\n", "Line two."],
]


def raw_rows(count, real=True):
    """``count`` made-up questions of ten paragraphs, two of them evidence; and the real ones, where they are there.

    Neighbours share a paragraph, and every fifth names one of its paragraphs twice as evidence.
    """
    rows = [_row(number) for number in range(count)]
    return rows + [official(row, number) for number, row in enumerate(_real() if real else [])]


def _row(number):
    rng = random.Random(number)
    titles = [f"Title {number * (OWN - 1) + k}" for k in range(OWN)]
    texts = [[f"{title} is.", f" It is number {title.split()[1]}."] for title in titles]
    texts[3] = AWKWARD[number % len(AWKWARD)]
    first, second = rng.sample([0, 1, 2, *range(4, OWN)], 2)
    facts = [[titles[first], 0], [titles[second], 1]] + [[titles[first], 1]] * (number % 5 == 0)
    answer = f"number {titles[second].split()[1]}"
    context = [[title, text] for title, text in zip(titles, texts, strict=True)]
    return {"_id": f"{number:024x}", "question": f"Who is {number}?", "answer": answer, "type": "bridge",
            "level": "hard", "supporting_facts": facts, "context": context}


def _real():
    return json.loads(HOTPOTQA_FILE.read_text()) if HOTPOTQA_FILE.exists() else []


def official(row, number):
    """A row of Hugging Face's columns as the original file has it."""
    facts, context = row["supporting_facts"], row["context"]
    pairs = {"supporting_facts": (facts["title"], facts["sent_id"]), "context": tuple(context.values())}
    lists = {name: [list(pair) for pair in zip(*columns, strict=True)] for name, columns in pairs.items()}
    return {"_id": f"real{number}"} | row | lists


def flashrag(row):
    """A row of the original file as FlashRAG has it."""
    titles, sentences = zip(*row["context"], strict=True)
    fact_titles, fact_sentences = zip(*row["supporting_facts"], strict=True)
    metadata = {
        "type": row["type"], "level": row["level"],
        "supporting_facts": {"title": list(fact_titles), "sent_id": list(fact_sentences)},
        "context": {"title": list(titles), "sentences": list(sentences)},
    }
    return {"id": row["_id"], "question": row["question"], "golden_answers": [row["answer"]], "metadata": metadata}


def split_documents(context):
    """The documents of a text, without their numbers."""
    parts = ("\n\n" + context).split("\n\nDocument ")[1:]
    return [part.split(":\n", 1)[1] for part in parts]
