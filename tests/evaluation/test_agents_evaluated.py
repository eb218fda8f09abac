"""Every agent through the evaluation harness, on files made from HotpotQA and 2WikiMultiHopQA rows."""

import itertools
import json

import pytest

from mem_agent import eval_ruler_hqa as ev
from mem_agent.config import Config
from mem_agent.data import eval_files
from mem_agent.evaluation.results import read_rows
from mem_agent.evaluation.tables import agent_table
from mem_agent.tests.helpers.evaluations import encode, make_model
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.question_rows import HOTPOTQA_FILE

LENGTHS = ("3", "6", "20")
CHUNK, MEMORY, FINAL = 500, 200, 40
REPLIES = {
    "memagent": "Sean at {number}",
    "rememr1": "<update>Sean at {number}</update>\n<recall>Sean</recall>",
    "gated": "update\nSean at {number}",
    "parallel": "Sean at {number}",
}


def two_wiki_row(number):
    """As published: paragraphs as pairs, sentences without blanks between, evidences beside them."""
    titles = [f"Film {number}", f"Director {number}", f"Song {number}", f"Town {number}"]
    context = [[title, [f"{title} was made in 19{number:02}.", "It is known."]] for title in titles]
    return {"_id": f"2w{number}", "type": "compositional", "question": f"Who made the film {number}?",
            "context": context, "supporting_facts": [[titles[0], 0], [titles[1], 0]],
            "evidences": [[titles[0], "director", titles[1]]], "answer": f"Sean {number}"}


def raw_file(name, tmp_path):
    if name == "HotpotQA" and not HOTPOTQA_FILE.exists():
        pytest.skip(f"no {HOTPOTQA_FILE.name} beside the repository")
    path = tmp_path / "2wiki.json"
    path.write_text(json.dumps([two_wiki_row(number) for number in range(12)]))
    return HOTPOTQA_FILE if name == "HotpotQA" else path


def answer(agent):
    """A memory of its own at every turn: one that is shown already would not be recalled."""
    number, final = itertools.count(), encode("\\boxed{Sean}")

    def reply(body):
        memory = encode(REPLIES[agent].format(number=next(number)))
        return final if body["sampling_params"]["max_tokens"] == FINAL else memory

    return reply


@pytest.mark.parametrize("agent", REPLIES)
@pytest.mark.parametrize("data", ["HotpotQA", "2WikiMultiHopQA"])
def test_rows_and_table_say_what_the_agent_did(tmp_path, data, agent):
    made = ["--lengths", " ".join(LENGTHS), "--questions", "4", "--processes", "1", "--output", str(tmp_path)]
    assert eval_files.main(["--raw", str(raw_file(data, tmp_path)), *made]) == 0
    config = Config(agent=agent, mem_chunk_tokens=CHUNK, mem_max_memory=MEMORY, mem_max_final=FINAL, mem_parallel=3,
                    mem_max_retries=0, eval_server_wait=0.0)
    router, output = FakeRouter(default=answer(agent)), tmp_path / agent
    with running_beside(router):
        model = make_model(tmp_path / "model", positions=8192)
        ev.run(tmp_path, LENGTHS, model, f"http://127.0.0.1:{router.port}", config, output, True)
    for length in LENGTHS:
        rows = read_rows(output, length)
        assert len(rows) == 4 and all(row.failure is None for row in rows)
        for row in rows:
            counts = row.counts
            assert counts["chunks_read"] == counts["chunks"] == -(-counts["document_tokens"] // CHUNK)
            assert row.prediction == "Sean"
            if agent == "rememr1":
                assert counts["updates"] == counts["recalls"] == counts["chunks"]
                # The first finds nothing: the memory of its own turn is no history yet.
                assert counts["recall_hits"] == counts["chunks"] - 1
    named = agent_table([output]).splitlines()[0]
    assert ("| updates | recalls | recall hits |" in named) == (agent == "rememr1")
