"""The host's own rollout loop with our hooks, in training and in evaluation, from the data file to the ranks' data.

Every worker request goes to a fake server; over-sampling leaves trajectories behind that really are aborted midway.
"""

import pytest

from mem_agent.report.viewer.show import main as show_main
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.inside_host import host
from mem_agent.tests.inside_host.check_convert import check
from mem_agent.tests.inside_host.host import Library, contents, manager, no_object_store, parse, questions_of

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


def train(folder, library, *flags, questions=5, inline=True):
    """One training rollout of the host: the manager, the router, what each rank was given."""
    router = FakeRouter(default=library)
    path = host.training_file(folder, questions, inline)
    with running_beside(router):
        one = manager(parse(folder, router, "--prompt-data", str(path), *flags))
        with no_object_store():
            return one, router, contents(one.generate(0))


@pytest.mark.parametrize("flags,inline", [((), True), (("--reward-key", "score"), False), (("--group-rm",), True)],
                         ids=["plain", "reward_key", "group_rm"])
def test_an_oversampled_filtered_rollout(tmp_path, logged, flags, inline):
    library = Library({0: wrong, 1: held, 3: broken_once, 4: held_from_the_start})
    more = (*FILTER, "--n-samples-per-prompt", "3", "--over-sampling-batch-size", "5", *LOGS, *flags)
    one, _, ranks = train(tmp_path, library, *more, inline=inline)
    drawn = dict(zip(questions_of(one.data_source.drawn), one.data_source.drawn, strict=True))
    batch = drawn[2] + drawn[3]
    assert sorted(s.status.value for s in batch) == ["completed"] * 5 + ["failed"]
    check(batch, 6, ranks)
    for number in (1, 4):
        assert {s.status.value for s in drawn[number]} == {"aborted"}
    assert [s.reward for s in drawn[0]] == [{"score": 0.0} if "--reward-key" in flags else 0.0] * 3
    assert logged[0]["rollout/memory/failed/rejected"] == 1 and logged[0]["rollout/memory/reward"] == 0.6
    assert logged[0]["rollout/memory/rows"] == sum(len(rank["tokens"]) for rank in ranks)


def test_an_aborted_trajectory_sends_nothing_more(tmp_path):
    library = Library({0: held, 1: held})
    _, router, _ = train(tmp_path, library, *FILTER, "--over-sampling-batch-size", "4", questions=4)
    assert set(router.aborted_at) == {len(router.requests)}  # slime repeats its order until the server is idle
    assert {turns: n for turns, n in library.turns.items() if turns[0] == 1} == {(1, "first"): 2, (1, "later"): 2}


def test_an_evaluation_is_logged_with_our_numbers(tmp_path, logged):
    router = FakeRouter(default=Library({1: wrong}))
    path = host.training_file(tmp_path, 4)
    with running_beside(router):
        args = parse(tmp_path, router, "--eval-prompt-data", "hqa", str(path), "--eval-interval", "1",
                     "--n-samples-per-eval-prompt", "2", "--eval-function-path", "mem_agent.rollout.evaluate", *LOGS)
        manager(args).eval(0)
    # Of each question's two answers the second is wrong, of question 1 both: 3 of 8 are right.
    assert logged[0]["eval/hqa"] == logged[0]["eval/hqa/memory/reward"] == 0.375
    assert logged[0]["eval/hqa/memory/trajectories"] == 8 and logged[0]["eval/hqa/memory/turns"] > 1


def test_training_leaves_trajectories_that_can_be_shown(tmp_path, capsys):
    train(tmp_path, Library({1: wrong}), "--save", str(tmp_path / "run"), *LOGS, questions=4)
    assert show_main([str(tmp_path / "run"), "--rollout", "0"]) == 0
    assert capsys.readouterr().out.count("problem ") == 2
