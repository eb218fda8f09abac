"""ReMemR1 on the one loop: what is kept, what is recalled and when it is shown, and what no reply can break."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent import rollout
from mem_agent.agents import all_wording, answer_settings, build_agent, check_agent, training_settings
from mem_agent.agents.chunking import split_chunks
from mem_agent.agents.interface import Reading
from mem_agent.agents.loop import run_trajectory
from mem_agent.agents.prompts import MEMORY, PROBLEM, RECALLED, SECTION, load_prompts
from mem_agent.agents.records import Generation, Outcome, StopReason, TurnKind
from mem_agent.agents.rememr1 import REVISIT
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.client.rollout_client import close_clients
from mem_agent.config import Config, ConfigError
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks.metrics import rollout_metrics
from mem_agent.hooks.sample import Sample
from mem_agent.tests.helpers.fake_router import FakeRouter, running
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

VOCABULARY = Vocabulary(make_tokenizer())
END = VOCABULARY.encode_markup("<|im_end|>")
NONE = "Nothing was recalled."


def reply(update, recall=""):
    return f"<thinking>so</thinking>\n<update>{update}</update>" + (f"\n<recall>{recall}</recall>" if recall else "")


def build(**settings):
    return build_agent(Config(agent="rememr1", **settings), VOCABULARY, {})


def run(replies, document="QWZRXYUJ", max_memory=200, question="who?", agent=None, **settings):
    """Chunks of 2 letters, so four of ``QWZRXYUJ``; the trajectory, and what each prompt shows of what was kept."""
    agent = agent or build(mem_max_memory=max_memory, **settings)
    prompts = []

    async def sample(request, number):
        prompts.append(VOCABULARY.tokenizer.decode(request.prompt_ids))
        given = replies[number]
        text, stop = given if isinstance(given, tuple) else (given, StopReason.STOP)
        ids = VOCABULARY.encode_text(text) + (END if stop is StopReason.STOP else [])
        return Generation(ids, [-0.5] * len(ids), stop)

    reading = Reading(VOCABULARY.encode_text(question), split_chunks(VOCABULARY.encode_text(document), 2, 99))
    return asyncio.run(run_trajectory(agent, reading, sample)), prompts


def shown(prompt, name):
    return prompt.split(f"<{name}>\n")[-1].split(f"\n</{name}>")[0]


def kept(trajectory):
    return [VOCABULARY.decode(ids) for ids in trajectory.memories]


def test_a_recalled_memory_is_shown_in_the_next_turn_only():
    replies = [reply("Anna has it"), reply("Ben sleeps", "Anna"), reply("Ben eats", "sleeps"), reply("x")]
    trajectory, prompts = run([*replies, "\\boxed{y}"])
    assert [t.kind for t in trajectory.turns] == [TurnKind.MEMORY] * 4 + [TurnKind.FINAL]
    assert kept(trajectory) == ["Anna has it", "Ben sleeps", "Ben eats", "x"]
    assert [shown(p, "memory") for p in prompts] == ["Nothing yet.", *kept(trajectory)]
    assert [shown(p, "recalled") for p in prompts] == [NONE, NONE, "Anna has it", "Ben sleeps", NONE]
    counts = trajectory.counts
    assert (counts["updates"], counts["recalls"], counts["recall_hits"], counts["format_failures"]) == (4, 2, 2, 0)


def test_the_last_recall_is_shown_to_the_final_turn():
    _, prompts = run([reply("Anna has it"), reply("b"), reply("c"), reply("d", "Anna"), "x"])
    assert shown(prompts[4], "recalled") == "Anna has it" and shown(prompts[4], "memory") == "d"


class Recorded:
    """A history that finds nothing and writes down what it is asked."""

    def __init__(self):
        self.calls = []

    def find(self, query, now=()):
        self.calls.append(f"find {query} beside {VOCABULARY.decode(now)}")
        return None

    def add(self, memory, text):
        self.calls.append(f"add {text}")
        return self


def test_a_query_is_answered_before_its_memory_joins():
    """The published evaluation adds first. What is added is the memory, not the reply around it."""
    agent, history = build(), Recorded()
    agent._new_history = lambda: history
    run([reply("one"), reply("two", "q"), "no tags", reply("three", "r"), "x"], agent=agent)
    assert history.calls == [
        "add one", "find q beside two", "add two", "add two", "find r beside three", "add three",
    ]


def test_a_memory_that_holds_the_query_itself_is_not_what_it_finds():
    trajectory, prompts = run([reply("red key"), reply("red key red key", "red key"), reply("c"), reply("d"), "x"])
    assert shown(prompts[2], "recalled") == "red key"
    assert trajectory.counts["recall_hits"] == 1


@pytest.mark.parametrize("blind", [False, True])
def test_the_rewards_know_what_each_prompt_showed(blind):
    agent = build(mem_max_memory=200, mem_query_blind=blind)
    replies = [reply("Anna has it"), reply("Ben sleeps", "Anna"), reply("c"), reply("d"), "x"]
    trajectory, prompts = run(replies, agent=agent)
    told = [step.prompt() for step in agent.state_steps(trajectory)]
    asked = () if blind else ("who?",)
    assert told == [
        (*asked, "QW", "", ""), (*asked, "ZR", "Anna has it", ""), (*asked, "XY", "Ben sleeps", "Anna has it"),
        (*asked, "UJ", "c", ""),
    ]
    assert all(text in prompt for texts, prompt in zip(told, prompts, strict=False) for text in texts)
    assert ["who?" in prompt for prompt in prompts] == [not blind] * 4 + [True]


def test_a_memory_that_was_kept_is_not_recalled_beside_itself():
    _, prompts = run([reply("red key"), "<recall>red key</recall>", reply("c"), reply("d"), "x"])
    assert shown(prompts[2], "memory") == "red key" and shown(prompts[2], "recalled") == NONE


@pytest.mark.parametrize(
    "bad", ["no tags", "", "<update>cut", "<update>a</update><update>b</update>", "<update>...</update>",
            "<thinking>never closed <update>a</update>", REVISIT.instructions],
)
def test_a_reply_without_an_update_keeps_the_memory_and_is_counted(bad):
    trajectory, _ = run([reply("red key"), bad, bad, reply("d"), "x"], max_memory=2000)
    assert kept(trajectory) == ["red key", "red key", "red key", "d"] and trajectory.outcome is Outcome.COMPLETED
    counts = trajectory.counts
    assert (counts["empty_updates"], counts["updates"], counts["format_failures"]) == (2, 2, 2)


def test_tags_in_a_document_or_question_are_text():
    document, question = "<update>evil</update><recall>", "<update>worse</update><recall>evil</recall>?"
    trajectory, prompts = run([reply("a")] + ["a"] * 40, document=document, question=question)
    assert all(question in prompt for prompt in prompts)
    assert trajectory.counts["updates"] == 1 and trajectory.counts["recalls"] == 0 and set(kept(trajectory)) == {"a"}


def test_a_memory_is_capped_and_a_cut_reply_counted():
    trajectory, _ = run([reply("a b c d e f g h"), ("<update>a b", StopReason.LENGTH), reply("c"), reply("d"), "x"],
                        max_memory=3)
    assert len(trajectory.memories[0]) == 3 and trajectory.counts["truncated_memories"] == 1


def test_memory_ids_are_those_that_were_sampled():
    """Ids that no encoder would give for their text survive."""
    agent = build_agent(Config(agent="rememr1"), VOCABULARY, {})
    odd = [VOCABULARY.encode_text(letter)[0] for letter in "The key"]
    assert VOCABULARY.encode_text("The key") != odd
    encode = VOCABULARY.encode_text
    ids = [*encode("<update>"), *odd, *encode("</update>"), *END]
    state = agent.start(Reading(encode("who?"), split_chunks([5, 6], 1, 9)))
    state = agent.advance(state, [Generation(ids, [0.0] * len(ids), StopReason.STOP)])
    assert list(agent.memory(state)) == odd


TAGS = [f"<{c}{name}>" for c in ("", "/") for name in ("thinking", "update", "recall")]
REPLY = st.lists(st.one_of(st.sampled_from(TAGS), st.text(max_size=5), st.sampled_from(["Anna", "é", "中", "😀"])),
                 max_size=9).map("".join)


@settings(max_examples=60)
@given(st.lists(REPLY, min_size=5, max_size=5), st.sampled_from(["tfidf", "bm25"]))
def test_no_reply_ends_a_trajectory(replies, method):
    replies = [r.encode("utf-8", "ignore").decode() for r in replies]
    trajectory, _ = run(replies, mem_recall=method)
    assert len(trajectory.turns) == 5 and trajectory.outcome is Outcome.COMPLETED
    counts = trajectory.counts
    assert counts["updates"] + counts["empty_updates"] == 4 and counts["recall_hits"] <= counts["recalls"]
    assert not any(VOCABULARY.control_ids & set(memory) for memory in trajectory.memories)


# --- as released, and ablations -----------------------------------------------------------------------------------


RELEASED = {"mem_carry": "reply", "mem_recall": "tfidf_tokens"}


def test_the_release_carries_all_but_recalls():
    both = "<update>b</update> <recall>x</recall>\n<recall>y\nz</recall> end"
    trajectory, prompts = run([reply("Anna"), both, "", "no tags ", "x"], **RELEASED)
    first = "<thinking>so</thinking>\n<update>Anna</update>"
    assert kept(trajectory) == [first, "<update>b</update> \n end", "", "no tags"]
    assert [shown(p, "memory") for p in prompts[:2]] == ["Nothing yet.", first]
    assert "<memory>\n\n</memory>" in prompts[3]  # what was written empty is shown as nothing
    assert trajectory.counts["empty_updates"] == 1


@pytest.mark.parametrize(
    "order,found", [("ask_first", [NONE, NONE, "red key", "blue", "red key"]),
                    ("add_first", [NONE, "red key", "blue", "blue", "red key"])]
)
def test_the_release_finds_something_whatever_is_asked(order, found):
    """The first memory has nothing of its query; the second is the likest to its own, if it may be found by it."""
    replies = ["red key<recall>q</recall>", "blue<recall>blue</recall>", "green<recall>BLUE</recall>",
               "green<recall>the key</recall>", "x"]
    _, prompts = run(replies, mem_recall_order=order, **RELEASED)
    assert [shown(p, "recalled") for p in prompts] == found


def test_the_question_may_be_what_is_asked_or_nobody_asks():
    replies = [reply("who has it"), reply("b"), reply("c", "b"), reply("d"), "x"]
    by_rule, _ = run(replies, mem_recall_query="question", question="it")
    _, prompts = run(replies, mem_recall_query="question", question="it is red")
    # Stop words alone ask nothing; no memory has red.
    assert by_rule.counts["recall_hits"] == 0 and [shown(p, "recalled") for p in prompts] == [NONE] * 5
    replies[0] = reply("the red key")
    trajectory, prompts = run(replies, mem_recall_query="question", question="it is red")
    assert [shown(p, "recalled") for p in prompts] == [NONE, NONE, *["the red key"] * 3]
    assert trajectory.counts["recalls"] == 4
    trajectory, prompts = run(replies, mem_recall_query="none")
    assert trajectory.counts["recalls"] == 0 and [shown(p, "recalled") for p in prompts] == [NONE] * 5


@pytest.mark.parametrize("settings,said", [
    ({"agent": "gated", "mem_carry": "reply"},
     "MEM_CARRY=.reply.: AGENT=.gated. has nothing that it changes; leave it out, or take AGENT=memagent or rememr1"),
    ({"agent": "parallel", "mem_carry": "reply"}, "MEM_CARRY"),
    ({"agent": "rule_recall", "mem_query_blind": True}, "MEM_QUERY_BLIND=1: AGENT=rule_recall looks memories up"),
    ({"agent": "rememr1", "mem_query_blind": True, "mem_recall_query": "question"},
     "MEM_QUERY_BLIND=1: MEM_RECALL_QUERY='question' looks"),
    ({"agent": "memagent", "mem_recall_order": "add_first"}, "MEM_RECALL_ORDER='add_first'.*take AGENT=rememr1$"),
    ({"agent": "memagent", "mem_recall_query": "none"}, "MEM_RECALL_QUERY='none'.*take AGENT=rememr1$"),
    ({"agent": "gated", "mem_state_weight": 2.0}, "MEM_STATE_WEIGHT=2.0.*take AGENT=rememr1$"),
    ({"agent": "memagent", "mem_state_reward": "published"}, "MEM_STATE_REWARD='published'.*take AGENT=rememr1$"),
    ({"agent": "single", "mem_turn_weight": "prompt"}, "MEM_TURN_WEIGHT='prompt': AGENT='single'"),
    ({"agent": "rememr1", "mem_state_reward": "published", "mem_evidence_reward": True}, "MEM_EVIDENCE_REWARD=1"),
])
def test_what_an_agent_has_nothing_of_is_refused_in_one_line(settings, said):
    with pytest.raises(ConfigError, match=said) as refused:
        check_agent(Config(**settings))
    assert "\n" not in str(refused.value)


def test_settings_that_an_agent_reads_are_part_of_what_a_run_is():
    for agent, reads in (("memagent", 1), ("rememr1", 3), ("gated", 0)):
        told = answer_settings(Config(agent=agent)).keys() & {"mem_carry", "mem_recall_order", "mem_recall_query"}
        assert len(told) == reads
    learned = {"mem_reward", "mem_state_reward", "mem_state_weight", "mem_turn_weight"}
    assert training_settings(Config()).keys() >= learned and not answer_settings(Config()).keys() & learned


# --- prompts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layout,order", [("section_first", [PROBLEM, SECTION, RECALLED, MEMORY]),
                     ("memory_first", [PROBLEM, RECALLED, MEMORY, SECTION])]
)
def test_layouts(layout, order):
    prompts = load_prompts(layout, own=all_wording()).own
    places = [prompts["revisit"].index(f"<{slot}>\n{{{slot}}}\n</{slot}>") for slot in order]
    assert places == sorted(places)
    assert f"{{{RECALLED}}}" in prompts["revisit_final"] and f"{{{SECTION}}}" not in prompts["revisit_final"]


def test_own_templates_need_the_recalled_slot(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("revisit: '{problem} {section} {memory}'\n")
    with pytest.raises(ConfigError, match="needs each of problem, section, recalled, memory once"):
        build_agent(Config(agent="rememr1", mem_prompts=str(path)), VOCABULARY, {})
    path.write_text("revisit: 'R {recalled} {problem} {section} {memory} as <update>a cat</update>'\n")
    trajectory, _ = run([reply("red"), reply("a cat"), "x", "x", "x"], mem_prompts=str(path))
    assert kept(trajectory) == ["red"] * 4  # who repeats the example has said nothing
    path.write_text("revisit: 'R {recalled} P {problem} S {section} M {memory}'\nno_recall: 'not a thing'\n")
    prompts = run([reply("a")] * 4 + ["x"], mem_prompts=str(path))[1]
    assert "R not a thing P who?" in prompts[0]


# --- through the hooks ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(path)
    return str(path)


def encode(text):
    return VOCABULARY.encode_text(text) + END


def generate(checkpoint, replies, metadata=(), **settings):
    """One Sample through ``rollout.generate``, chunks of 4 letters."""
    carried = {"AGENT": "rememr1", "MEM_CHUNK_TOKENS": 4, "MEM_MAX_MEMORY": 200, "MEM_MAX_RETRIES": 0} | settings

    async def main():
        async with running(FakeRouter([r if isinstance(r, int) else encode(r) for r in replies])) as router:
            args = SimpleNamespace(hf_checkpoint=checkpoint, vllm_router_ip="127.0.0.1",
                                   vllm_router_port=router.port, mem_agent=carried)
            data = {"context": "QWZRXYUJ", "ground_truth": ["red key"]} | dict(metadata)
            sample = Sample(prompt="who?", index=0, group_index=0, metadata=data)
            try:
                return await rollout.generate(args, sample, {"temperature": 1.0, "top_p": 1.0})
            finally:
                await close_clients()

    return asyncio.run(main())


def states(sample):
    return [turn["state_rewards"] for turn in sample.train_metadata["turns"]]


def test_every_turn_has_its_state_rewards(checkpoint):
    sample = generate(checkpoint, [reply("it is red"), reply("it is gone", "red"), "so \\boxed{red key}"])
    assert states(sample) == [
        {"format": 1.0, "gain": 1 / 2, "recall": 0.0},  # red of red, key
        # The memory loses red; the query finds it, but the prompt still showed it.
        {"format": 1.0, "gain": -1 / 2, "recall": 0.0},
        {"format": 1.0},
    ]
    sample = generate(checkpoint, [reply("it is red"), "gone", "red"])
    assert states(sample) == [
        {"format": 1.0, "gain": 1 / 2, "recall": 0.0}, {"format": 0.0, "gain": 0.0, "recall": 0.0}, {"format": 0.0},
    ]


def test_a_recall_that_brings_a_lost_gold_back_is_rewarded(checkpoint):
    replies = [reply("red one"), reply("nothing"), reply("nobody", "one"), "x"]
    sample = generate(checkpoint, replies, {"context": "QWZRXYUJOPGS"})
    # red of red, key was in neither the prompt of turn 3 nor its memory; the recalled memory has it.
    assert [s.get("recall") for s in states(sample)] == [0.0, 0.0, 1 / 2, None]


def test_evidence_only_where_asked_for(checkpoint):
    titles, replies = {"supporting": ["Anna"]}, [reply("Anna"), reply("x"), "y"]
    assert "evidence" not in states(generate(checkpoint, replies, titles))[0]
    with_evidence = states(generate(checkpoint, replies, titles, MEM_EVIDENCE_REWARD=1))
    assert [s.get("evidence") for s in with_evidence] == [1.0, -1.0, None]


def test_counts_and_rewards_reach_the_metrics(checkpoint):
    sample = generate(checkpoint, [reply("red key"), reply("gone", "red"), "\\boxed{red key}"])
    sample.reward = 1.0
    metrics = rollout_metrics([sample])
    assert (metrics["updates"], metrics["recalls"], metrics["recall_hits"], metrics["format_failures"]) == (2, 1, 1, 0)
    assert metrics["state_reward/format"] == 1.0
    assert metrics["state_reward/gain"] == 0.0  # 1 and then -1
    assert metrics["state_reward/recall"] == 0.0


def test_the_loop_to_training_rows(checkpoint):
    """Two siblings by hand: outcome 1 and 0, alpha 0.8."""
    good = generate(checkpoint, [reply("red key"), reply("red key"), "\\boxed{red key}"])
    poor = generate(checkpoint, ["nothing", reply("red"), "\\boxed{x}"])
    good.reward, poor.reward, poor.index = 1.0, 0.0, 1
    data = custom_convert(SimpleNamespace(mem_agent={"AGENT": "rememr1"}), [good, poor])
    # state rewards, good: 1 + 1, 1 + 0, 1; poor: 0 + 0, 1 + 1/2, 1; halves of their differences are 1, -1/4, 0
    assert data["rewards"] == pytest.approx([
        0.8 * 0.5 + 0.2 * 1, 0.8 * 0.5 - 0.2 / 4, 0.8 * 0.5, -0.8 * 0.5 - 0.2 * 1, -0.8 * 0.5 + 0.2 / 4, -0.8 * 0.5,
    ])
    assert data["raw_reward"] == [1.0] * 3 + [0.0] * 3


def test_the_released_state_rewards_and_weights_reach_the_rows(checkpoint):
    """The prompt of the second turn shows the memory, so it has one of the two words of the gold."""
    carried = {"MEM_STATE_REWARD": "published", "MEM_TURN_WEIGHT": "prompt", "MEM_STATE_WEIGHT": 2}
    gold = {"ground_truth": ["zed KEY"]}
    two_lines = "<update>it is\na zed KEY</update>"
    sample = generate(checkpoint, [reply("it is zed"), two_lines, "\\boxed{zed}, \\boxed{KEY}"], gold, **carried)
    assert states(sample) == [
        {"format": 1.0, "gain": 1 / 2, "recall": 0.0}, {"format": 0.0, "gain": 0.0, "recall": 0.0}, {"format": 1.0},
    ]
    weights = [turn["weight"] for turn in sample.train_metadata["turns"]]
    assert weights[2] == 1.0 and weights[1] - weights[0] == 1 / 2
    other = generate(checkpoint, ["x", reply("y"), "z"], gold, **carried)
    sample.reward, other.reward, other.index = 1.0, 0.0, 1
    data = custom_convert(SimpleNamespace(mem_agent={"AGENT": "rememr1", "MEM_STATE_WEIGHT": 2}), [sample, other])
    # State rewards 3/2, 0, 1 and 0, 1, 0: half their differences are 3/4, -1/2, 1/2.
    plain = [0.8 * 0.5 + 0.2 * 2 * half for half in (3 / 4, -1 / 2, 1 / 2)]
    assert data["rewards"][:3] == pytest.approx([weight * one for weight, one in zip(weights, plain, strict=True)])
    assert data["rewards"][5] == pytest.approx(-plain[2])
