"""The simulated engine: what it computes, forgets and how long it takes, by hand."""

import random

import pytest

from mem_agent.benchmarks.simulation.cache import BlockCache
from mem_agent.benchmarks.simulation.engine import Engine, Limits, Request, StepCosts
from mem_agent.benchmarks.simulation.prompts import Reading, least_computed, read_documents
from mem_agent.benchmarks.simulation.rollout import ROUTES, Fleet, Ring, simulate

COSTS = StepCosts(step=1.0, prompt_token=0.01, sequence=0.1, context_token=0.001)
LIMITS = Limits(16)
SMALL = Reading(chunk=100, memory=20, final=10, instructions=40, question=8, ending=8, block=16)


def run(engine):
    """(end, request) in the order of ending; nothing arrives."""
    now, ended = 0.0, []
    while engine.load:
        now += engine.take_step()
        ended += [(now, request) for request in engine.finish_step(now)]
    return ended


def fleet(engines=1, limits=LIMITS, **settings):
    return Fleet(engines=engines, costs=COSTS, limits=limits, **settings)


def test_seconds_of_a_request_by_hand():
    engine = Engine(COSTS, Limits(16))
    engine.waiting.append(Request((("a", 6),), 100, 4))
    ((end, _),) = run(engine)
    # The prompt with the first token: 1 + 100 * 0.01. Three more, looking at 101, 102 and 103 tokens.
    assert end == pytest.approx(2.0 + 3 * (1 + 0.1) + 0.001 * (101 + 102 + 103))
    assert engine.counts.steps == 4 and engine.counts.generated == 4


def test_steps_taken_at_once_cost_what_single_steps_cost():
    def ends(cut):
        engine = Engine(COSTS, Limits(16))
        engine.waiting.extend([Request((), 10, 50, 1), Request((), 12, 30, 2)])
        now, ended = 0.0, []
        while engine.load:
            seconds = engine.take_step()
            if cut:
                engine.waiting.append(None)  # as if a request had arrived at once
                seconds = engine.cut(0.0)
                engine.waiting.pop()
            now += seconds
            ended += [(round(now, 6), request.name) for request in engine.finish_step(now)]
        return ended, engine.counts.steps

    assert ends(True) == ends(False)


def test_a_sibling_finds_whole_blocks_that_were_allocated_in_the_same_step():
    engine = Engine(COSTS, Limits(16))
    path = (("shared", 6), )
    engine.waiting.extend([Request(path, 100, 1, 1), Request(path, 100, 1, 2)])
    run(engine)
    assert engine.counts.computed == 100 + 4 and engine.counts.steps == 1


def test_a_prompt_of_whole_blocks_computes_its_last_one_again():
    engine = Engine(COSTS, Limits(16))
    engine.waiting.extend([Request((("shared", 6),), 96, 1, i) for i in range(2)])
    run(engine)
    assert engine.counts.computed == 96 + 16


def test_where_blocks_are_found_only_when_computed_siblings_compute_twice_unless_one_leads():
    limits = Limits(16, found_when_computed=True)
    trajectories = read_documents(SMALL, [3], group=4)
    least = least_computed(trajectories, 16)
    together = simulate(trajectories, fleet(limits=limits))
    led = simulate(trajectories, fleet(limits=limits, lead=True))
    assert together.computed > 1.5 * least and led.computed == least
    assert simulate(trajectories, fleet()).computed == least


def test_a_chunk_whose_prompt_takes_several_steps_is_computed_once():
    trajectories = read_documents(SMALL, [2], group=4)
    limits = Limits(16, step_tokens=48)
    assert simulate(trajectories, fleet(limits=limits)).computed == least_computed(trajectories, 16)


def test_without_chunked_prefill_a_prompt_waits_for_a_step_of_its_own():
    engine = Engine(COSTS, Limits(16, step_tokens=128, chunked=False))
    engine.waiting.extend([Request((), 100, 1, 1), Request((), 100, 1, 2)])
    assert [round(end, 6) for end, _ in run(engine)] == [2.0, 4.0]


def test_the_least_recently_used_is_forgotten_from_its_end():
    cache = BlockCache(10)
    for name, blocks in (("a", 4), ("b", 4)):
        lease = cache.open(((name, blocks),), 0)
        cache.extend(lease, blocks)
        cache.close(lease)
    lease = cache.open((("c", 5),), 0)  # two were empty, three are taken from a
    cache.extend(lease, 5)
    assert [cache.found(((name, size),), 9) for name, size in (("a", 4), ("b", 4), ("c", 5))] == [1, 4, 5]
    assert cache.free == 5


@pytest.mark.parametrize("blocks", [24, 40, 80])
def test_no_block_is_lost_where_sequences_give_way(blocks):
    engine = Engine(COSTS, Limits(16, blocks, 64, 256))
    draw = random.Random(0)
    requests = [Request((("doc", 4), (i, 2)), 100, draw.randrange(1, 120), i) for i in range(20)]
    engine.waiting.extend(requests)
    run(engine)
    assert engine.cache.free == blocks
    assert engine.counts.generated == sum(request.reply for request in requests)
    assert all(request.done == request.reply for request in requests)
    if blocks == 24:
        assert engine.counts.preemptions > 0


@pytest.mark.parametrize("layout", ["section_first", "memory_first"])
@pytest.mark.parametrize("route", [route for route in ROUTES if route != "recorded"])
def test_every_token_is_computed_or_found(layout, route):
    reading = Reading(**{**vars(SMALL), "layout": layout})
    trajectories = read_documents(reading, [1, 2, 5], group=4)
    outcome = simulate(trajectories, fleet(3, Limits(16, 200), route=route))
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    assert outcome.sent == sum(turn.prompt for turn in turns)
    assert outcome.computed + sum(map(sum, outcome.cached)) == outcome.sent
    assert sum(engine.generated for engine in outcome.engines) == sum(turn.reply for turn in turns)
    assert outcome.computed >= least_computed(trajectories, 16)


def test_one_engine_that_forgets_nothing_computes_the_closed_form():
    # Head of 40 tokens: two whole blocks for all documents; question and chunk: up to token 148, nine blocks.
    (one,) = {t.prompt for t in read_documents(SMALL, [1], group=1)[0].turns[:1]}
    assert one == 40 + 8 + 100 + 4 + 8
    trajectories = read_documents(SMALL, [2], group=3)
    first = 160 + 2 * 16  # whole blocks: the last one once more for each sibling
    second = (176 - 3 * 16) + 2 * (176 - 9 * 16)  # 176 tokens; three blocks of the first turn, then nine shared
    final = (76 - 0) + 2 * (76 - 3 * 16)  # 48 tokens of instructions and question are three blocks
    assert simulate(trajectories, fleet()).computed == least_computed(trajectories, 16) == first + second + final


def test_in_turn_more_engines_never_compute_less_and_groups_cost_no_more_than_alone():
    trajectories = read_documents(SMALL, [3] * 4, group=8)
    dealt = [simulate(trajectories, fleet(n, route="round_robin")).computed for n in (1, 2, 4, 8)]
    assert dealt == sorted(dealt) and dealt[-1] > 1.5 * dealt[0]
    grouped = [simulate(trajectories, fleet(n, route="balanced")).computed for n in (1, 2, 4)]
    # Another engine computes the instructions (two blocks, of each kind of turn) once more.
    assert [tokens - grouped[0] for tokens in grouped] == [0, 4 * 16, 3 * 4 * 16]


def test_warming_moves_the_work_and_adds_one_block_a_turn_at_most():
    trajectories = read_documents(Reading(chunk=2000, memory=50, final=50, block=16), [4] * 2, group=4)
    cold, warm = (simulate(trajectories, fleet(warm=warm, turn_s=0.5)) for warm in (False, True))
    extra = warm.computed - cold.computed
    assert 0 <= extra <= 6 * 16  # the token behind each prefix, of six requests that warm
    # Engines that compute and decode in one step have the same to do: nothing is gained where they are never idle.
    assert warm.seconds == pytest.approx(cold.seconds, rel=0.01)


def test_the_same_twice():
    trajectories = read_documents(SMALL, [1, 4, 2], group=4, seed=3)
    one, two = (simulate(trajectories, fleet(2, Limits(16, 100))) for _ in range(2))
    assert (one.seconds, one.ended, one.cached) == (two.seconds, two.ended, two.cached)


def test_the_ring_moves_few_keys_to_another_engine():
    four, five = Ring(4), Ring(5)
    moved = [four.engine_of(str(key)) != five.engine_of(str(key)) for key in range(2000)]
    assert 0.1 < sum(moved) / 2000 < 0.3
    assert all(five.engine_of(str(key)) == 4 for key, away in enumerate(moved) if away)
