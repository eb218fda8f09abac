"""The host's own rollout loop with our hooks, in training and in evaluation, from the data file to the ranks' data.

Every worker request goes to a fake server; over-sampling leaves trajectories behind that really are aborted midway.
"""


import pytest

from mem_agent.report.viewer.show import main as show_main
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.inside_host import host
from mem_agent.tests.inside_host.check_convert import check
from mem_agent.tests.inside_host.host import (
    Library,
    Sample,
    contents,
    manager,
    module,
    no_object_store,
    parse,
    questions_of,
)

FILTER = ("--dynamic-sampling-filter-path", "mem_agent.rollout.nonzero_std")
LOGS = ("--custom-rollout-log-function-path", "mem_agent.rollout.log_rollout",
        "--custom-eval-rollout-log-function-path", "mem_agent.rollout.log_eval")


def wrong(turn, before):
    return "\\boxed{blue}" if turn == "final" else None


def held(turn, before):
    return "hold" if turn == "later" else None


def held_from_the_start(turn, before):
    return "hold"


def broken_once(turn, before):
    return 400 if turn == "first" and before == 0 else None


@pytest.fixture
def logged(monkeypatch):
    """Every dict that the host would send to its trackers."""
    metrics = []
    place = "observability.logging_utils" if host.NAME == "slime" else "utils.logging_utils"
    monkeypatch.setattr(module(place), "log", lambda args, values, step_key: metrics.append(values))
    return metrics


def train(folder, library, *flags, questions=5, inline=True):
    """One training rollout of the host: the manager, the router, what each rank was given."""
    router = FakeRouter(default=library)
    path = host.training_file(folder, questions, inline)
    with running_beside(router):
        one = manager(parse(folder, router, "--prompt-data", str(path), *flags))
        with no_object_store():
            return one, router, contents(one.generate(0))


OVERSAMPLED = (*FILTER, "--n-samples-per-prompt", "3", "--over-sampling-batch-size", "5")


@pytest.mark.parametrize("inline", [True, False], ids=["context", "context_id"])
@pytest.mark.parametrize(
    "flags", [(), ("--reward-key", "score"), ("--group-rm",)], ids=["plain", "reward_key", "group_rm"]
)
def test_an_oversampled_filtered_rollout(tmp_path, logged, flags, inline):
    library = Library({0: wrong, 1: held, 3: broken_once, 4: held_from_the_start})
    one, _, ranks = train(tmp_path, library, *OVERSAMPLED, *LOGS, *flags, inline=inline)
    drawn = dict(zip(questions_of(one.data_source.drawn), one.data_source.drawn, strict=True))
    batch = drawn[2] + drawn[3]
    assert sorted(s.status.value for s in batch) == ["completed"] * 5 + ["failed"]
    check(batch, 6, ranks, dp=2)
    for number in (1, 4):
        assert {s.status.value for s in drawn[number]} == {"aborted"}
    assert [s.reward for s in drawn[0]] == [{"score": 0.0} if "--reward-key" in flags else 0.0] * 3
    assert logged[0]["rollout/memory/failed/rejected"] == 1 and logged[0]["rollout/memory/reward"] == 0.6
    assert logged[0]["rollout/memory/rows"] == sum(len(rank["tokens"]) for rank in ranks)


def test_an_aborted_trajectory_sends_nothing_more(tmp_path):
    library = Library({0: held, 1: held})
    _, router, _ = train(tmp_path, library, *FILTER, "--over-sampling-batch-size", "4", questions=4)
    assert nothing_after_an_abort(router)
    assert {turns: n for turns, n in library.turns.items() if turns[0] == 1} == {(1, "first"): 2, (1, "later"): 2}


def nothing_after_an_abort(router):
    """slime repeats its order until the server is idle."""
    return set(router.aborted_at) == {len(router.requests)}


def evaluate(folder):
    router = FakeRouter(default=Library({1: wrong}))
    path = host.training_file(folder, 4)
    with running_beside(router):
        args = parse(folder, router, "--eval-prompt-data", "hqa", str(path), "--eval-interval", "1")
        return manager(args).eval_generate_rollout(args, 0, None, evaluation=True).data["hqa"]


def test_evaluation_gives_one_row_for_each_question(tmp_path):
    result = evaluate(tmp_path)
    assert result["rewards"] == [1.0, 0.0, 1.0, 1.0] and result["truncated"] == [False] * 4
    assert questions_of([[s] for s in result["samples"]]) == [0, 1, 2, 3]
    assert all(isinstance(s, Sample) for s in result["samples"])


def test_evaluation_is_logged_with_our_numbers(tmp_path, logged):
    router = FakeRouter(default=Library({1: wrong}))
    path = host.training_file(tmp_path, 4)
    with running_beside(router):
        args = parse(tmp_path, router, "--eval-prompt-data", "hqa", str(path), "--eval-interval", "1",
                     "--n-samples-per-eval-prompt", "2",
                     "--eval-function-path", "mem_agent.rollout.evaluate", *LOGS)
        manager(args).eval(0)
    # Of each question's two answers the second is wrong, of question 1 both: 3 of 8 are right.
    assert logged[0]["eval/hqa"] == logged[0]["eval/hqa/memory/reward"] == 0.375
    assert logged[0]["eval/hqa/memory/pass@2"] == 0.75
    # The best of two draws with replacement from a right and a wrong one is right 3 times in 4.
    assert logged[0]["eval/hqa/memory/best@2"] == 0.75 * 0.75
    assert logged[0]["eval/hqa/memory/trajectories"] == 8 and logged[0]["eval/hqa/memory/turns"] > 1


def test_training_and_its_evaluation_leave_trajectories_that_can_be_shown(tmp_path, capsys):
    router = FakeRouter(default=Library({1: wrong}))
    path = host.training_file(tmp_path, 4)
    with running_beside(router):
        one = manager(parse(
            tmp_path, router, "--prompt-data", str(path), "--eval-prompt-data", "h q/a", str(path), "--eval-interval",
            "1", "--n-samples-per-eval-prompt", "2", "--save", str(tmp_path / "run"), *LOGS))
        with no_object_store():
            one.generate(12)
        one.eval(12)
    files = sorted(file.name for file in (tmp_path / "run" / "trajectories").iterdir())
    assert files == ["eval_000012_h_q_a.jsonl", "rollout_000012.jsonl"]
    shown = [show(capsys, tmp_path / "run", *place) for place in (("--length", "h q/a"), ("--rollout", "12"))]
    assert [said.count("problem ") for said in shown] == [4, 2]
    (one_answer,) = [show(capsys, tmp_path / "run", "--length", "h q/a", "--question", "1", "--sample", "1")]
    assert "problem 1?" in one_answer and "blue" in one_answer and "QWZJ" in one_answer


def show(capsys, *arguments):
    capsys.readouterr()
    assert show_main([str(one) for one in arguments]) == 0
    return capsys.readouterr().out
