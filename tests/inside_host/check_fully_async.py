"""The host's fully asynchronous rollout with our hooks: full batches, no question lost, repeated or shipped half read.

Aborted answers stand for a weight update, which in this mode interrupts whatever is in flight.
"""

import queue

from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.inside_host import host
from mem_agent.tests.inside_host.host import Library, manager, module, parse, questions_of, training_file

fully_async = module("rollout.fully_async_rollout")
FUNCTION = "mem_agent.rollout.rollout_fully_async"


def interrupted(turn, before):
    return "abort" if turn == "later" and before == 0 else None


def rest_of(waiting):
    groups = []
    while True:
        try:
            groups.append(waiting.get_nowait()[1])
        except queue.Empty:
            return groups


def test_rollouts_in_a_row_with_interrupted_trajectories(tmp_path):
    library = Library({1: interrupted, 2: interrupted, 3: interrupted})
    router = FakeRouter(default=library)
    path = training_file(tmp_path, 40)
    with running_beside(router):
        args = parse(tmp_path, router, "--prompt-data", str(path), "--rollout-function-path", FUNCTION)
        setattr(args, f"{host.DIALECT}_server_concurrency", 4)
        one = manager(args)
        rollouts = [one._get_rollout_data(number)[0] for number in range(3)]
        worker = fully_async._global_worker
        fully_async._stop_global_worker()
        shipped = [rollout[i : i + 2] for rollout in rollouts for i in range(0, len(rollout), 2)]
        kept = shipped + rest_of(worker.output_queue)

    assert [len(rollout) for rollout in rollouts] == [4, 4, 4]
    assert {s.status.value for group in kept for s in group} == {"completed"}
    numbers = questions_of(kept)
    assert len(set(numbers)) == len(numbers)
    requeued = questions_of(one.data_source.buffer)
    finished = {n for (n, turn), count in library.turns.items() if turn == "final" and count == 2}
    assert {1, 2, 3} <= finished
    drawn = questions_of(one.data_source.drawn)
    assert sorted(drawn) == sorted(finished | set(requeued)) and not finished & set(requeued)
    if host.NAME == "slime":  # vime throws away what finishes beyond a rollout's size
        assert sorted(numbers) == sorted(finished)
