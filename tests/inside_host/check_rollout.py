"""The host's own loops with our hooks, from the data file to the ranks' data: training, evaluation, asynchronous, sft.

Every worker request goes to a fake server; over-sampling leaves trajectories behind that really are aborted midway.
"""

import copy
import json
from types import SimpleNamespace

import pytest

from mem_agent.report.viewer.show import main as show_main
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer
from mem_agent.tests.inside_host import host
from mem_agent.tests.inside_host.check_convert import check
from mem_agent.tests.inside_host.host import Library, manager, module, parse, questions_of, training_file

FILTER = ("--dynamic-sampling-filter-path", "mem_agent.rollout.nonzero_std")
LOGS = ("--custom-rollout-log-function-path", "mem_agent.rollout.log_rollout",
        "--custom-eval-rollout-log-function-path", "mem_agent.rollout.log_eval")
NOBODY = SimpleNamespace(port=9)


def wrong(turn, before):
    return "\\boxed{blue}" if turn == "final" else None


def held(turn, before):
    return "hold" if turn == "later" else None


def broken_once(turn, before):
    return 400 if turn == "first" and before == 0 else None


def interrupted(turn, before):
    return "abort" if turn == "later" and before == 0 else None


def train(folder, library, *flags, questions=5, inline=True):
    """One training rollout of the host: the manager, the router, what each rank was given."""
    router = FakeRouter(default=library)
    path = training_file(folder, questions, inline)
    with running_beside(router):
        one = manager(parse(folder, router, "--prompt-data", str(path), *flags))
        return one, router, [box.inner for box in one.generate(0)]


@pytest.mark.parametrize("flags,inline", [((), True), (("--reward-key", "score"), False), (("--group-rm",), True)],
                         ids=["plain", "reward_key", "group_rm"])
def test_an_oversampled_filtered_rollout(tmp_path, logged, flags, inline):
    library = Library({0: wrong, 1: held, 3: broken_once, 4: lambda turn, before: "hold"})
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
    path = training_file(tmp_path, 4)
    with running_beside(router):
        args = parse(tmp_path, router, "--eval-prompt-data", "hqa", str(path), "--eval-interval", "1",
                     "--n-samples-per-eval-prompt", "2", "--eval-function-path", "mem_agent.rollout.evaluate", *LOGS)
        manager(args).eval(0)
    # Of each question's two answers the second is wrong, of question 1 both: 3 of 8 are right.
    assert logged[0]["eval/hqa"] == logged[0]["eval/hqa/memory/reward"] == 0.375
    assert logged[0]["eval/hqa/memory/trajectories"] == 8 and logged[0]["eval/hqa/memory/turns"] > 1


def test_training_leaves_trajectories_that_can_be_shown_and_samples_that_can_be_saved(tmp_path, capsys):
    """Hosts dump rollouts as plain dicts; ours must survive that, turns included."""
    one, *_ = train(tmp_path, Library({1: wrong}), "--save", str(tmp_path / "run"), *LOGS, questions=4)
    assert show_main([str(tmp_path / "run"), "--rollout", "0"]) == 0
    assert capsys.readouterr().out.count("problem ") == 2
    sample = one.data_source.drawn[0][0]
    back = host.Sample.from_dict(copy.deepcopy(sample.to_dict()))
    assert back == sample and len(back.train_metadata["turns"]) == 2


def test_asynchronous_rollouts_in_a_row_are_full_and_no_question_is_lost_repeated_or_half_read(tmp_path):
    """Aborted answers stand for a weight update, which in this mode interrupts whatever is in flight."""
    fully_async = module("rollout.fully_async_rollout")
    library = Library(dict.fromkeys((1, 2, 3), interrupted))
    router, path = FakeRouter(default=library), training_file(tmp_path, 40)
    with running_beside(router):
        args = parse(tmp_path, router, "--prompt-data", str(path), "--rollout-function-path",
                     "mem_agent.rollout.rollout_fully_async")
        setattr(args, f"{host.DIALECT}_server_concurrency", 4)
        one = manager(args)
        rollouts = [one._get_rollout_data(number)[0] for number in range(3)]
        waiting = fully_async._global_worker.output_queue
        fully_async._stop_global_worker()
    kept = [rollout[i : i + 2] for rollout in rollouts for i in range(0, len(rollout), 2)]
    kept += [waiting.get_nowait()[1] for _ in range(waiting.qsize())]
    assert [len(rollout) for rollout in rollouts] == [4, 4, 4]
    assert {s.status.value for group in kept for s in group} == {"completed"}
    numbers, requeued = questions_of(kept), questions_of(one.data_source.buffer)
    finished = {n for (n, turn), count in library.turns.items() if turn == "final" and count == 2}
    assert len(set(numbers)) == len(numbers) and {1, 2, 3} <= finished
    assert sorted(questions_of(one.data_source.drawn)) == sorted(finished | set(requeued))
    assert not finished & set(requeued)
    if host.NAME == "slime":  # vime throws away what finishes beyond a rollout's size
        assert sorted(numbers) == sorted(finished)


def test_each_rank_gets_its_rows_of_given_replies(tmp_path, logged):
    """LOSS=sft: rows with the replies that they give, and no server."""
    metadata = [{"solution": f"\\boxed{{{number}}}"} for number in range(3)] + [{}]
    rows = [{"prompt": f"problem {n}?", "label": None, "metadata": one} for n, one in enumerate(metadata)]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = parse(tmp_path, NOBODY, "--prompt-data", str(path), "--n-samples-per-prompt", "1", "--rollout-batch-size",
                 "4", "--rollout-function-path", "mem_agent.rollout.rollout_of_given_replies", *LOGS)
    args.debug_train_only = True
    args.mem_agent = host.SETTINGS | {"LOSS": "sft", "MEM_MAX_FINAL": 64, "AGENT": "single"}
    taught = []
    for rank in (box.inner for box in manager(args).generate(0)):
        for tokens, length, mask in zip(*(rank[n] for n in ("tokens", "response_lengths", "loss_masks")), strict=True):
            taught.append((make_tokenizer().decode(tokens[-length:]), set(map(int, mask))))
    given = [(f"\\boxed{{{number}}}<|im_end|>", {1}) for number in range(3)]
    assert sorted(one for one in taught if one[1] == {1}) == given and len(taught) == 4
    assert logged[0]["rollout/memory/failed/no_reply"] == 1 and logged[0]["rollout/memory/trajectories"] == 4
    assert "rollout/memory/reward" not in logged[0]
