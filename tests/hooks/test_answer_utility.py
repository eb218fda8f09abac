"""REWARD=answer_utility through the reward hook, with a chat endpoint that knows answers from gold sessions alone."""

import asyncio
import itertools
import random
import re
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from mem_agent import rollout
from mem_agent.client import chat_client
from mem_agent.config import Config, ConfigError
from mem_agent.hooks import batch_reward
from mem_agent.hooks.host import HostArgs
from mem_agent.hooks.metrics import rollout_metrics
from mem_agent.hooks.plugins import check_plugins
from mem_agent.hooks.record import Record
from mem_agent.rewards.answer_utility import AnswerUtility, AnswerUtilitySettings
from mem_agent.rewards.marginal_utility import TIERS, marginal_utility
from mem_agent.tests.helpers.fake_chat import DRIP, HANG, FakeChat, chat_server
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.tests.helpers.ranked_rows import naming, ranked, stored_rows

KNOWN = re.compile(r"I live in (\w+)\.")


def asked(body):
    """The user message of a request."""
    return body["messages"][-1]["content"]


def only_alone(body, number):
    """Right without any session, wrong with one."""
    return "<answer>Lyon0</answer>" if "(none)" in asked(body) else "x"


def reader(body, number):
    """The answer where the prompt shows it; nothing otherwise."""
    found = KNOWN.search(asked(body))
    return f"Let me see. <answer>{found[1] if found else 'unknown'}</answer>"


@pytest.fixture(autouse=True)
def fresh():
    batch_reward._runs.clear()


@pytest.fixture
def chat():
    with chat_server(FakeChat(reader)) as server:
        yield server


@pytest.fixture
def run(tmp_path, chat):
    def start(args="", **settings):
        own = {"answer_url": chat.url, "answer_model": "served", "answer_retries": 1, "answer_timeout": HANGS_AFTER_S,
               "mem_retry_backoff": 0.01}
        config = Config(**{
            "agent": "chat", "task": "rank_sessions", "reward": "answer_utility", "reward_args": args,
            "train_data": str(tmp_path / "train.jsonl"), "save_path": str(tmp_path / "run"), **own, **settings})
        return SimpleNamespace(mem_agent=config, save=config.save_path)

    return start


@pytest.fixture
def rows(tmp_path):
    return stored_rows(tmp_path / "train.jsonl", [3, 11])


def score(args, samples, number=None):
    async def all_of_them():
        for sample, reward in zip(samples, await asyncio.gather(*(rollout.reward_func(args, s) for s in samples)),
                                  strict=True):
            sample.reward = reward

    asyncio.run(all_of_them())
    if number is not None:
        batch_reward.apply(HostArgs.of(args), samples, number)
    return [sample.reward for sample in samples]


def parts(sample):
    return dict(Record.of(sample).reward_parts)


PLACES = {1: 1.0, 2: 0.6309, 3: 0.5, 4: 0.3869, 5: 0.3869, 6: 0.3155, 8: 0.3155, 9: 0.2891, 10: 0.2891}


def test_a_ranking_is_worth_what_the_place_of_the_gold_session_gives(run, rows):
    samples = [ranked(rows[0], naming(3, place=place), place, 0) for place in PLACES]
    assert score(run(), samples, 0) == pytest.approx(list(PLACES.values()), abs=5e-5)
    assert parts(samples[0]) == {"answer_utility": pytest.approx(1.0)}
    never = ranked(rows[1], naming(0), 99, 1)  # gold is 11, the last of twelve
    assert score(run(), [never]) == [0.0]


def test_siblings_share_requests_also_those_on_their_way(run, rows, chat):
    chat.delay = 0.05
    args = run()
    samples = [ranked(rows[0], naming(3, place=place), place, 0) for place in (1, 1, 2)]
    score(args, samples, 0)
    sets = {frozenset(ranking[:tier]) for ranking in map(ranking_of, samples) for tier in (0, *TIERS)}
    assert len(chat.bodies) == len(sets) < 3 * 7
    told = batch_reward.metrics(HostArgs.of(args))
    assert told["answers/asked"] == len(sets) and told["answers/asked"] + told["answers/shared"] == 21
    assert told["answers/score@0"] == 0.0 and told["answers/score@2"] == 1.0
    empty = [body for body in chat.bodies if "(none)" in asked(body)]
    assert len(empty) == 1, "s_0 is asked once for a prompt"
    seeds = [body["seed"] for body in chat.bodies]
    assert len(set(seeds)) == len(seeds)


def ranking_of(sample):
    return [int(word) for word in re.findall(r"\d+", sample.response)]


def test_rewards_do_not_depend_on_the_order_of_siblings(run, rows, chat):
    def answer(body, number):  # another text for every seed, right by chance
        said = random.Random(body["seed"]).choice(["Lyon0", "Lyon1", "Lyon0 or Lyon1", "no"])
        return f"<answer>{said}</answer>"

    chat.answer = answer
    replies = [naming(3, place=place) for place in (1, 2, 5, 10)] + ["none"]
    rewards = []
    for order in itertools.islice(itertools.permutations(range(5)), 0, 120, 17):
        batch_reward._runs.clear()
        samples = [ranked(rows[number % 2], replies[number], number, number % 2) for number in order]
        given = score(run(), samples, 0)
        rewards.append([given[order.index(number)] for number in range(5)])
    assert all(one == rewards[0] for one in rewards) and len(set(rewards[0])) > 2


def test_what_the_chat_model_is_shown_is_in_the_order_of_time_and_fits_the_budget(run, rows, chat):
    score(run(answer_budget=60), [ranked(rows[0], naming(3, place=10), 0, 0)])
    prompts = [asked(body) for body in chat.bodies]
    assert all(prompt.count("<session") <= 3 for prompt in prompts) and len(prompts) == 4, "3 sessions of 20 tokens"
    films = [[int(n) for n in re.findall(r"film (\d+)", prompt)] for prompt in prompts]
    assert all(shown == sorted(shown) for shown in films)
    assert "Where do I live?" in prompts[0]


def test_what_is_no_ranking_is_worth_less_than_any_that_is_whatever_else_counts(run, rows, chat):
    """A property: answers turned against the policy, length, NDCG and weights drawn at random."""
    drawn = random.Random(5)
    for number in range(12):
        batch_reward._runs.clear()
        hostile = drawn.random()
        chat.answer = lambda body, _, share=hostile: (
            "<answer>Lyon0</answer>" if ("(none)" in asked(body)) == (drawn.random() > share) else "x")
        args = run(
            f"alpha={drawn.choice([0.5, 1, 3])} beta={drawn.choice([0, 1, 4])} anneal={drawn.choice([0, 3])} "
            f"below={drawn.choice([0.1, 1])}",
            overlong_buffer=drawn.choice([0, 8, 64]), overlong_penalty=drawn.choice([0.5, 1, 5.0]), mem_max_final=64)
        places = [(drawn.randrange(12), 1 + drawn.randrange(10), drawn.randrange(1, 65)) for _ in range(4)]
        valid = [ranked(rows[0], naming(n, place=place), i, 0, t) for i, (n, place, t) in enumerate(places)]
        broken = [ranked(rows[0], reply, 9, 0, drawn.randrange(1, 65)) for reply in ("", "<ranking>1</ranking>")]
        score(args, [*valid, *broken], number=0)
        assert max(s.reward for s in broken) < min(s.reward for s in valid), number


def test_a_worst_ranking_beats_none_by_the_margin(run, rows, chat):
    chat.answer = only_alone
    long = {"overlong_buffer": 4, "overlong_penalty": 5.0, "mem_max_final": 8}
    samples = [ranked(rows[0], naming(0), 0, 0, 8), ranked(rows[0], "no", 1, 0, 1)]
    assert score(run("below=0.5", **long), samples) == pytest.approx([-1 - 5, -1.5 - 5])
    assert parts(samples[0]) == {"answer_utility": pytest.approx(-1.0), "overlong": -5.0}


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [HANG, DRIP, 500, 429])
@pytest.mark.parametrize("place", ["no session", "a tier"])
def test_a_failed_call_is_a_missing_value_and_never_a_score(run, rows, chat, fault, place):
    def answer(body, number):
        text = asked(body)
        first = "(none)" in text if place == "no session" else KNOWN.search(text)
        return fault if first else reader(body, number)

    chat.answer = answer
    samples = [ranked(rows[0], naming(3, place=p), p, 0) for p in (1, 2)] + [ranked(rows[0], "no", 3, 0)]
    args = run(**({"answer_timeout": 1.0} if fault in (HANG, DRIP) else {}))
    score(args, samples, 0)
    assert [s.status.value for s in samples] == ["failed", "failed", "completed"]
    assert all(s.remove_sample for s in samples[:2]) and samples[2].reward == -2.0
    assert rollout_metrics(samples)["failed/answer_model"] == 2
    chat.answer = reader  # a failure is not remembered, also not one of a good answer that a busy machine gives late
    for _ in range(20):
        again = [ranked(rows[0], naming(3, place=p), p, 0) for p in (1, 2)]
        rewards = score(args, again)
        if {s.status.value for s in again} == {"completed"}:
            break
    assert rewards == pytest.approx([1.0, 0.6309], abs=5e-5)


def test_an_error_that_passes_is_tried_again(run, rows, chat):
    seen = set()

    def flaky(body, number):
        first = body["seed"] not in seen
        seen.add(body["seed"])
        return 503 if first else reader(body, number)

    chat.answer = flaky
    assert score(run(), [ranked(rows[0], naming(3), 0, 0)]) == pytest.approx([1.0])


def test_a_dead_server_fails_what_it_has_not_answered(run, rows, tmp_path, silent_port):
    with chat_server(FakeChat(reader, port=silent_port)) as gone:
        args = run(answer_url=gone.url, answer_retries=0)
        assert score(args, [ranked(rows[0], naming(3), 0, 0)]) == pytest.approx([1.0])
    samples = [ranked(rows[0], naming(3), 1, 0), ranked(rows[1], naming(3), 2, 1)]
    score(args, samples)
    assert [s.status.value for s in samples] == ["completed", "failed"], "the first is remembered"


@pytest.mark.parametrize("settings", [{"answer_model": "other"}, {}])
def test_a_name_or_key_that_is_wrong_from_the_start_ends_the_run(run, rows, chat, settings):
    chat.key = "" if settings else "right-key-12345"
    with pytest.raises(ConfigError, match="REWARD=answer_utility"):
        score(run(**settings), [ranked(rows[0], naming(3), 0, 0)])


def test_a_key_reaches_the_server_and_no_record(run, rows, chat, monkeypatch, caplog):
    monkeypatch.setenv("ANSWER_KEY", "secret-key-12345")
    chat.answer = lambda body, _: 500 if "(none)" in asked(body) else "x"
    chat.key = "secret-key-12345"
    args, sample = run(answer_retries=0), ranked(rows[0], naming(3), 0, 0)
    score(args, [sample])
    assert chat.headers[0]["Authorization"] == "Bearer secret-key-12345"
    written = f"{sample} {sample.train_metadata} {caplog.text} {args.mem_agent.to_yaml()} {batch_reward._runs}"
    assert "failed" in written and "secret" not in written


@pytest.mark.parametrize(
    "change",
    [{"history_id": "0" * 16}, {"answers": []}, {"session_tokens": [1]}, {"question": " "}, {"history_id": None},
     {"answers": "Lyon0"}, {"answers": [None]}, {"options": "(a) Lyon0"}],
)
def test_a_row_that_cannot_be_asked_about_fails_alone(run, rows, change):
    samples = [ranked({**rows[0], **change}, naming(3), 0, 0), ranked(rows[1], naming(11), 1, 1)]
    score(run(), samples)
    assert [s.status.value for s in samples] == ["failed", "completed"]


# --- scorers --------------------------------------------------------------------------------------------------------


def test_em_asks_for_the_whole_answer(run, rows, chat):
    chat.answer = lambda body, _: "" if "(none)" in asked(body) else "<answer>in Lyon0</answer>"
    assert score(run("scorer=em"), [ranked(rows[0], naming(3), 0, 0)]) == [0.0]
    assert score(run("scorer=f1"), [ranked(rows[0], naming(3), 0, 0)]) == pytest.approx([2 / 3])


def test_numbers_are_told_apart(run, tmp_path, rows, chat):
    row = {**rows[0], "answers": ["7 May"]}
    chat.answer = lambda body, _: "" if "(none)" in asked(body) else "<answer>9 May</answer>"
    assert score(run(), [ranked(row, naming(3), 0, 0)]) == pytest.approx([0.5])


def test_a_judge_scores_what_was_answered(run, rows, chat):
    def answer(body, number):
        text = asked(body)
        if "Reply:" not in text:
            return reader(body, number)
        return '{"score": 0.6}' if "Lyon0" in text.partition("Reply:")[2] else '{"score": 0}'

    chat.answer = answer
    assert score(run("scorer=judge"), [ranked(rows[0], naming(3), 0, 0)]) == pytest.approx([0.6])


def test_a_judge_of_another_name_at_another_place_gets_no_other_servers_key(run, rows, chat, monkeypatch):
    monkeypatch.setenv("ANSWER_KEY", "secret-key-12345")
    with chat_server(FakeChat(lambda body, _: '{"score": 1}', models=("judge",))) as judge:
        args = run(f"scorer=judge judge_url={judge.url} judge_model=judge")
        assert score(args, [ranked(rows[0], naming(3), 0, 0)]) == [0.0]
        assert not any("Authorization" in headers for headers in judge.headers) and len(judge.bodies) == 7


def test_a_key_file_that_is_no_text_is_one_line(run, rows, tmp_path, monkeypatch):
    (file := tmp_path / "key").write_bytes(b"\xff\xfesecret")
    monkeypatch.setenv("ANSWER_KEY_FILE", str(file))
    with pytest.raises(ConfigError, match=r"^ANSWER_KEY_FILE='.*key': it holds bytes that are no text") as refused:
        score(run(), [ranked(rows[0], naming(3), 0, 0)])
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("verdict", ["not bad", '{"score": 0.7}', '{"points": 1}'])
def test_a_judge_that_gives_no_score_leaves_it_missing(run, rows, chat, verdict):
    chat.answer = lambda body, number: verdict if "Reply:" in asked(body) else reader(body, number)
    sample = ranked(rows[0], naming(3), 0, 0)
    score(run("scorer=judge"), [sample])
    assert Record.of(sample).failure.value == "answer_score"


# --- warm-up --------------------------------------------------------------------------------------------------------


def rollouts(args, row, numbers):
    """The parts of a ranking with gold second, in these rollouts."""
    told = []
    for number in numbers:
        sample = ranked(row, naming(3, place=2), number, number)
        score(args, [sample], number)
        told.append(parts(sample))
    return told


def test_the_warm_up_asks_nobody_and_ends_by_the_rollouts(run, rows, chat):
    args = run("beta=2 warmup=2 anneal=2")
    ndcg, utility = pytest.approx(2 * 0.6309, abs=1e-4), pytest.approx(0.6309, abs=1e-4)
    assert rollouts(args, rows[0], [0, 1]) == [{"ranking": ndcg}] * 2 and chat.bodies == []
    assert rollouts(args, rows[0], [2, 3, 4]) == [
        {"answer_utility": utility, "ranking": ndcg},
        {"answer_utility": utility, "ranking": pytest.approx(0.6309, abs=1e-4)},
        {"answer_utility": utility},
    ]
    told = batch_reward.metrics(HostArgs.of(args))
    assert (told["answers/alpha"], told["answers/beta"]) == (1.0, 0.0)


def test_a_resumed_run_goes_on_as_if_it_had_not_ended(run, rows, chat):
    whole = rollouts(run("beta=1 warmup=1 anneal=3"), rows[0], range(5))
    resumed = []
    for number in range(5):
        batch_reward._runs.clear()
        args = run("beta=1 warmup=1 anneal=3", save_path=run().save + "-resumed")
        batch_reward.prepare(HostArgs.of(args), number)
        resumed += rollouts(args, rows[0], [number])
    assert resumed == whole


def test_a_host_that_tells_no_number_before_sampling_goes_on_from_its_newest_checkpoint(run, rows, chat, tmp_path):
    args = run("beta=1 warmup=2")
    rollouts(args, rows[0], [0, 1])
    folder = tmp_path / "run"
    (folder / "iter_0000001").mkdir()
    (folder / "iter_0000001" / ".metadata").touch()
    (folder / "latest_checkpointed_iteration.txt").write_text("1")
    batch_reward._runs.clear()
    assert "answer_utility" in rollouts(args, rows[0], [2])[0]
    batch_reward._runs.clear()
    with pytest.raises(ConfigError, match="rollout 3 was scored as rollout 2"):
        rollouts(args, rows[0], [3])


def test_a_group_that_began_in_the_warm_up_ends_in_it(run, rows, chat):
    args = run("beta=2 warmup=1 anneal=1")
    early = ranked(rows[0], naming(3), 0, 7)
    score(args, [early])  # sampled ahead
    rollouts(args, rows[0], [0])
    late = ranked(rows[0], naming(3, place=2), 1, 7)
    score(args, [early, late], 1)
    assert [parts(s) for s in (early, late)] == [{"ranking": 2.0}, {"ranking": pytest.approx(2 * 0.6309, abs=1e-4)}]


def test_a_group_that_is_sampled_again_after_the_warm_up_is_asked_about(run, rows, chat):
    """The embedded host breaks groups off that a rollout does not need, and begins the next rollout with them."""
    args = run("beta=2 warmup=1")
    batch_reward.prepare(HostArgs.of(args), 0)
    score(args, [ranked(rows[0], naming(3), 0, 7)])  # broken off with rollout 0
    rollouts(args, rows[0], [0])
    batch_reward.prepare(HostArgs.of(args), 1)
    again = ranked(rows[0], naming(3), 0, 7)
    score(args, [again], 1)
    assert parts(again) == {"answer_utility": pytest.approx(1.0), "ranking": 2.0}, "as in a resumed run"


def test_alpha_0_needs_no_chat_model(run, rows):
    args = run("alpha=0 beta=1", answer_url="", answer_model="")
    assert score(args, [ranked(rows[0], naming(3), 0, 0), ranked(rows[0], "no", 1, 0)], 0) == [1.0, -1.0]


def test_the_filter_for_totals_sees_all_of_a_reward_before_the_rollout_is_whole(run, rows, chat):
    args = run("alpha=0 beta=1", dynamic_filter="nonzero_std", dynamic_filter_on="total")
    same = [ranked(rows[0], naming(3), i, 0) for i in range(2)]
    mixed = [ranked(rows[0], naming(3, place=p), p, 1) for p in (1, 2)]
    score(args, [*same, *mixed])
    assert [rollout.nonzero_std(args, group) for group in (same, mixed)] == [False, True]
    ahead = batch_reward.totals(HostArgs.of(args), mixed)
    batch_reward.apply(HostArgs.of(args), [*same, *mixed], 0)
    assert ahead == [s.reward for s in mixed]


# --- settings -------------------------------------------------------------------------------------------------------

REFUSED = [
    ({"answer_url": ""}, "set ANSWER_URL"),
    ({"answer_ckpt": "x"}, "unset one"),
    ({"answer_model": ""}, "set ANSWER_MODEL"),
    ({"answer_url": "localhost:1"}, "ANSWER_URL"),
    ({"mem_ir": "entropy"}, "MEM_IR"),
    ({"mem_turn_cost": 0.9, "reward_args": "below=0.5"}, "MEM_TURN_COST"),
    ({"reward_args": "beta=1", "dynamic_filter": "nonzero_std"}, "take total"),
    ({"reward_args": "tiers=2,3"}, "tiers"),
    ({"reward_args": "alpha=0"}, "alpha=0 beta=0"),
    ({"reward_args": "warmup=3"}, "set beta"),
    ({"reward_args": "scorer=bleu"}, "f1, em, judge"),
    ({"reward_args": "judge_url=http://a:1"}, "scorer=judge"),
    ({"reward_args": "scorer=judge judge_url=http://a:1"}, "judge_model"),
    ({"reward_args": "below=0"}, "below"),
    ({"reward_args": "alpha=1e308"}, "alpha=1e"), ({"reward_args": "below=1e308"}, "below=1e"),
    ({"reward_args": "beta=inf"}, "beta=inf"),
    ({"sifter_prompts": "nowhere.yaml"}, "SIFTER_PROMPTS"),
]


@pytest.mark.parametrize(("change", "said"), REFUSED)
def test_settings_that_cannot_work_are_refused_before_anything_starts(run, change, said):
    with pytest.raises(ConfigError, match=said):
        check_plugins(run(**change).mem_agent)


def test_settings_that_can_work_are_not(run):
    check_plugins(run("beta=1 warmup=10 anneal=10", dynamic_filter="nonzero_std", dynamic_filter_on="total").mem_agent)
    check_plugins(run(answer_url="", answer_model="", answer_ckpt="/models/chat").mem_agent)
    with pytest.raises(ConfigError, match="this host serves no second model"):
        batch_reward.reward_for(HostArgs.of(run(answer_url="", answer_ckpt="/models/chat")))


def test_the_hosts_name_the_model_that_they_serve():
    for dialect in ("sglang", "vllm"):
        routers = {"default": ("10.0.0.1", 1), "answer": ("10.0.0.2", 3000)}
        args = SimpleNamespace(**{f"{dialect}_model_routers": routers})
        assert HostArgs.of(args).answer_url == "http://10.0.0.2:3000"
    assert HostArgs.of(SimpleNamespace(vllm_model_routers={"default": ("10.0.0.1", 1)})).answer_url == ""


@pytest.mark.parametrize(("settings", "straight"), [
    ({"answer_url": "", "answer_model": "", "answer_ckpt": "/models/chat"}, {"10.0.0.2": True}),
    ({"answer_url": "http://10.0.0.3:1"}, {"10.0.0.3": False}),
    ({"answer_url": "", "answer_ckpt": "/models/chat", "reward_args":
      "scorer=judge judge_url=http://10.0.0.4:1 judge_model=j"}, {"10.0.0.2": True, "10.0.0.4": False}),
])
def test_no_proxy_is_asked_for_the_model_that_the_host_serves(run, monkeypatch, settings, straight):
    monkeypatch.setattr(chat_client, "ChatClient", lambda settings: made.append(settings))
    made = []
    args = run(**settings)
    args.vllm_model_routers = {"answer": ("10.0.0.2", 3000)}
    batch_reward.reward_for(HostArgs.of(args))
    assert {urlsplit(chat.url).hostname: chat.is_own for chat in made} == straight


def test_overlong_shaping_is_for_every_task(tmp_path):
    from mem_agent.tests.helpers.samples import trajectory, turns_of

    config = Config(overlong_buffer=4, overlong_penalty=0.5, mem_max_final=8, save_path=str(tmp_path))
    samples = [trajectory(turns_of([7, n]), reward=None, response="\\boxed{a}", prompt="q?", label="",
                          counts={"rounds": 1, "chunks": 1}, metadata={"ground_truth": ["a"]}) for n in (4, 6, 8)]
    assert score(SimpleNamespace(mem_agent=config), samples) == [1.0, 0.75, 0.5]
    with pytest.raises(ConfigError, match="OVERLONG_BUFFER=9"):
        Config(overlong_buffer=9, mem_max_final=8)


def test_the_published_tiers_are_asked(run, rows, chat):
    sample = ranked(rows[0], naming(3, place=6), 0, 0)
    (reward,) = score(run("tiers=1,2,3,5,8"), [sample])
    assert reward == pytest.approx(marginal_utility({k: float(k >= 6) for k in (0, 1, 2, 3, 5, 8)}))
    assert len(chat.bodies) == 6


def test_a_chinese_row_is_asked_and_scored_in_chinese(run, tmp_path, chat):
    (row,) = stored_rows(tmp_path / "train.jsonl", [2])
    row |= {"language": "zh", "question": "我住在哪里？", "answers": ["里昂"]}
    said = "<think>想一想</think><answer>里昂。</answer>"
    chat.answer = lambda body, _: said if KNOWN.search(asked(body)) else "不知道"
    assert score(run(), [ranked(row, naming(2, place=2), 0, 0)]) == pytest.approx([0.6309], abs=5e-5)
    assert "请根据这些记录" in asked(chat.bodies[0])


def test_the_options_of_a_question_stand_below_it(run, rows, chat):
    row = {**rows[0], "options": ["(a) Lyon0", "(b) Paris"], "answers": ["(a) Lyon0"]}
    chat.answer = lambda body, _: "<answer>(a) Lyon0</answer>" if KNOWN.search(asked(body)) else "(b)"
    assert score(run(), [ranked(row, naming(3), 0, 0)]) == pytest.approx([1.0])
    assert "Where do I live?\n(a) Lyon0\n(b) Paris" in asked(chat.bodies[0])


@pytest.mark.parametrize("scorer", ["f1", "em", "judge"])
@pytest.mark.parametrize(("said", "worth"), [("(b)", 1.0), ("You said tea with milk.", 1.0), ("(a)", 0.0),
                                             ("You said tea with lemon.", 0.0), ("(a) or (b)", 0.0)])
def test_an_answer_to_options_is_worth_the_option_that_it_chooses(run, rows, chat, scorer, said, worth):
    options = ["(a) You said tea with lemon.", "(b) You said tea with milk."]
    row = {**rows[0], "options": options, "answers": ["You said tea with milk.", "(b)"]}
    chat.answer = lambda body, _: f"<answer>{said if KNOWN.search(asked(body)) else ''}</answer>"
    assert score(run(f"scorer={scorer}"), [ranked(row, naming(3), 0, 0)]) == pytest.approx([worth])
    assert len(chat.bodies) == 7, "no judge is asked"


def test_options_of_which_no_answer_is_one_are_scored_by_words(run, rows, chat):
    row = {**rows[0], "options": ["(a) Paris", "(b) Rome"], "answers": ["in Lyon0"]}
    assert score(run(), [ranked(row, naming(3), 0, 0)]) == pytest.approx([2 / 3])


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 2000, "Infinity", "1e999", "-1", "2.5", '"3"', "true"])
def test_a_damaged_state_is_one_line_with_its_file(run, rows, content):
    args = run("beta=1 warmup=1 anneal=3")
    rollouts(args, rows[0], [0])
    [file] = (Path(args.save) / "reward_state").glob("*/rollouts.json")
    file.write_text(content)
    batch_reward._runs.clear()
    with pytest.raises(ConfigError, match=r"0000000/rollouts\.json: is damaged; write the number of rollouts"):
        batch_reward.prepare(HostArgs.of(args), 1)


def test_a_state_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"rollouts\.json: is not there; write the number of rollouts"):
        AnswerUtility(AnswerUtilitySettings()).load(tmp_path)
