"""One question in the shape of each known data set, and files of them."""

import json

MEMAGENT = {
    "prompt": [{"role": "user", "content": "Who?"}], "context": "Document 1:\nAnn\nAnn is.",
    "reward_model": {"style": "rule", "ground_truth": ["Ann", "Ann Lee", "Ann"]},
    "extra_info": {"index": 0, "question": "Who, again?", "num_docs": 1},
}
HOTPOTQA = {
    "_id": "5a", "question": "Who?", "answer": "Ann", "supporting_facts": [["Ann", 0], ["Ann", 1]],
    "context": [["Ann", ["Ann is.", " She was."]], ["Bob", ["Bob is."]]],
}
COLUMNS = {
    "supporting_facts": {"title": ["Ann", "Ann"], "sent_id": [0, 1]},
    "context": {"title": ["Ann", "Bob"], "sentences": [["Ann is.", " She was."], ["Bob is."]]},
}
FLASHRAG = {"id": "5a", "question": "Who?", "golden_answers": ["Ann"], "metadata": COLUMNS}
MUSIQUE = {
    "id": "2hop__1", "question": "Who?", "answer": "Ann", "answer_aliases": ["Ann Lee", "Ann"], "answerable": True,
    "paragraphs": [
        {"title": "Ann", "paragraph_text": "Ann is. She was.", "is_supporting": True},
        {"title": "Bob", "paragraph_text": "Bob is.", "is_supporting": False},
    ],
}
SQUAD = {"id": "56", "title": "Ann", "context": "Ann is. She was.", "question": "Who?",
         "answers": {"text": ["Ann", "Ann Lee", "Ann"], "answer_start": [0, 0, 0]}}
PLAIN = {"question": "Who?", "answer": "Ann", "context": "Ann is. She was."}
SQUAD_FILE = {"data": [
    {"title": "Rivers", "paragraphs": [
        {"context": "The Po is long.", "qas": [
            {"question": "Which?", "answers": [{"text": "Po"}, {"text": "The Po"}, {"text": "Po"}]},
            {"question": "None?", "answers": [], "is_impossible": True},
        ]},
        {"context": "It is cold.", "qas": []},
    ]},
    {"title": "Seas", "paragraphs": [{"context": "Salt.", "qas": [{"question": "Q", "answers": []}]}]},
]}


def without(row, *fields):
    return {key: value for key, value in row.items() if key not in fields}


def put(path, *rows):
    """A file of one JSON object per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
