"""Which trajectories of rollouts and of evaluations are kept, within which bound; files are whole or not there."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.traces.files import EvaluationFiles, rollout_path, sampled_first, write_rollout
from mem_agent.traces.trace import Trace, TraceDocument, TraceError, line_of, read_traces, trace_files

PLENTY = 10**9


def groups(*names, siblings=2, text="", document="same"):
    return [
        [TraceDocument(id=document, sections=("a",)),
         *(Trace(id=f"{name}-{n}", group=name, sample=n, response=text) for n in range(siblings))]
        for name in names
    ]


def kept(run):
    """Of each file the groups that it has, in order."""
    files = {path.name: [r.group for r in read_traces(path) if isinstance(r, Trace)] for path in trace_files(run)}
    return {name.removeprefix("rollout_").removesuffix(".jsonl").lstrip("0") or "0": list(dict.fromkeys(found))
            for name, found in files.items()}


def size_of(run):
    return sum(path.stat().st_size for path in trace_files(run))


def test_the_newest_rollout_is_whole_and_the_ones_before_have_the_first_groups(tmp_path):
    for number in range(3):
        written = write_rollout(tmp_path, number, groups("a", "b", "c"), 2, PLENTY)
    assert kept(tmp_path) == {"0": ["a", "b"], "1": ["a", "b"], "2": ["a", "b", "c"]}
    assert (written.groups, written.thinned) == (3, 0)


def test_a_document_is_there_once_and_goes_with_the_trajectories_that_read_it(tmp_path):
    write_rollout(tmp_path, 0, groups("a", "b") + groups("c", document="other"), 1, PLENTY)
    assert [r.id for r in read_traces(rollout_path(tmp_path, 0))] == ["same", "a-0", "a-1", "b-0", "b-1", "other",
                                                                       "c-0", "c-1"]
    write_rollout(tmp_path, 1, groups("a"), 1, PLENTY)
    assert [r.id for r in read_traces(rollout_path(tmp_path, 0))] == ["same", "a-0", "a-1"]
    write_rollout(tmp_path, 2, groups("a") + groups("c", document="other"), 1, PLENTY)
    write_rollout(tmp_path, 3, groups("a"), 1, PLENTY)
    assert [r.id for r in read_traces(rollout_path(tmp_path, 2))] == ["same", "a-0", "a-1"]


def test_a_rollout_that_is_sampled_again_takes_the_place_of_its_first_attempt(tmp_path):
    write_rollout(tmp_path, 0, groups("a", "b", "c"), 1, PLENTY)
    write_rollout(tmp_path, 0, groups("d"), 1, PLENTY)
    assert kept(tmp_path) == {"0": ["d"]}


def set_back_twice(run):
    """Rollouts 0 to 5 with evaluations after 0, 2 and 4; then 3 again, and 3 once more behind 4."""
    for number in range(6):
        write_rollout(run, number, groups("a", "b"), 1, PLENTY)
        if number % 2 == 0:
            (run / "trajectories" / f"eval_{number:06d}_h_q.jsonl").write_bytes(b"".join(map(line_of, groups("q")[0])))
    for number in (3, 4, 3):
        write_rollout(run, number, groups("c", "d"), 1, PLENTY)
    return [run / "trajectories" / f"given_up_000003.{n}" for n in (1, 2)]


def test_what_a_run_that_was_set_back_gave_up_is_put_aside_and_can_be_read_there(tmp_path):
    first, second = set_back_twice(tmp_path)
    assert kept(tmp_path) == {"0": ["a"], "1": ["a"], "2": ["a"], "3": ["c", "d"],
                              "eval_000000_h_q": ["q"], "eval_000002_h_q": ["q"]}
    assert kept(first) == {"3": ["a"], "4": ["a"], "5": ["a"], "eval_000004_h_q": ["q"]}
    assert kept(second) == {"3": ["c"], "4": ["c"]}


def test_what_was_given_up_is_the_first_to_go_and_counts_for_the_bound(tmp_path):
    first, second = set_back_twice(tmp_path)
    size = rollout_path(tmp_path, 0).stat().st_size
    written = write_rollout(tmp_path, 4, groups("e"), 1, 10 * size)  # five files of this size fit the other half
    assert kept(tmp_path)["0"] == ["a"] and written.thinned > 0
    rest = [path.stat().st_size for folder in (first, second) for path in folder.rglob("*.jsonl")]
    assert 0 < len(rest) < 6 and sum(rest) + 4 * size <= 5 * size
    write_rollout(tmp_path, 5, groups("e"), 1, 4 * size)
    assert not [*first.rglob("*.jsonl"), *second.rglob("*.jsonl")] and set(kept(tmp_path)) >= {"3", "4", "5"}


def test_the_oldest_are_thinned_first_and_then_removed(tmp_path):
    names, text = ("a", "b", "c"), "x" * 100
    write_rollout(tmp_path, 0, groups(*names, text=text), 2, PLENTY)
    bound = 4 * rollout_path(tmp_path, 0).stat().st_size  # half of it holds two files of three groups
    seen = []
    for number in range(1, 9):
        seen.append(write_rollout(tmp_path, number, groups(*names, text=text), 2, bound).thinned)
        assert size_of(tmp_path) <= bound
    assert seen[:2] == [0, 0] and seen[-1] > 0
    found = kept(tmp_path)
    assert found["8"] == ["a", "b", "c"] and "0" not in found and "7" in found
    assert [len(found[number]) for number in sorted(found, key=int)] == sorted(len(one) for one in found.values())


@given(bound=st.integers(200, 20_000), most=st.integers(1, 3), sizes=st.lists(
    st.lists(st.integers(0, 400), min_size=1, max_size=4), min_size=1, max_size=6))
def test_the_bound_holds_and_the_newest_rollout_keeps_what_fits_half_of_it(bound, most, sizes, tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    for number, lengths in enumerate(sizes):
        given_groups = [groups(str(n), text="x" * length)[0] for n, length in enumerate(lengths)]
        before = set(kept(run)) if number else set()
        written = write_rollout(run, number, given_groups, most, bound)
        assert size_of(run) <= bound and rollout_path(run, number).stat().st_size <= bound // 2
        found = kept(run)
        assert found[str(number)] == [str(n) for n in range(written.groups)][: len(found[str(number)])]
        assert set(found) <= before | {str(number)}


def test_of_a_group_that_is_too_large_the_first_siblings_are_kept(tmp_path):
    written = write_rollout(tmp_path, 0, groups("a", "b", text="x" * 400, siblings=8), 2, 10_000)
    names = [r.sample for r in read_traces(rollout_path(tmp_path, 0)) if isinstance(r, Trace)]
    assert (written.groups, kept(tmp_path)) == (1, {"0": ["a"]}) and 1 < len(names) < 8
    assert names == [*range(len(names))]


def test_a_full_disk_leaves_what_was_there(tmp_path):
    write_rollout(tmp_path, 0, groups("a"), 1, PLENTY)
    before = rollout_path(tmp_path, 0).read_bytes()

    def breaks():
        yield from groups("a")
        raise OSError(errno.ENOSPC, "No space left on device")

    for number in (0, 1):
        with pytest.raises(OSError, match="No space left"):
            write_rollout(tmp_path, number, breaks(), 1, PLENTY)
    assert rollout_path(tmp_path, 0).read_bytes() == before
    assert [path.name for path in (tmp_path / "trajectories").iterdir()] == ["rollout_000000.jsonl"]


def test_a_damaged_file_is_named(tmp_path):
    write_rollout(tmp_path, 0, groups("a"), 1, PLENTY)
    rollout_path(tmp_path, 0).write_text("no trace\n")
    with pytest.raises(TraceError, match=r"rollout_000000\.jsonl: line 1"):
        write_rollout(tmp_path, 1, groups("a"), 1, PLENTY)


@given(st.integers(0, 2**31), st.integers(0, 10**6), st.integers(0, 50), st.integers(0, 60))
def test_the_sample_depends_on_seed_and_rollout_alone_and_leaves_no_group_out(seed, rollout, count, most):
    order = sampled_first(seed, rollout, count, most)
    assert order == sampled_first(seed, rollout, count, most) and sorted(order) == list(range(count))
    first = order[:most]
    assert first == sorted(first) and order[most:] == sorted(order[most:])


def test_seeds_and_rollouts_differ_in_what_they_keep():
    assert len({tuple(sampled_first(seed, n, 100, 2)[:2]) for seed in (1, 2) for n in range(10)}) == 20


# --- evaluations ----------------------------------------------------------------------------------------------------

DOCUMENT = TraceDocument(id="d", sections=("text",))


def trace(number, length="50", response=""):
    return Trace(id=f"{length}-{number}-0", length=length, document="d", response=response)


def written(folder, *traces, bound=10**6, asked=None):
    files = EvaluationFiles(folder, asked or {one.length: [one.id] for one in traces}, bound)
    done = [files.write(DOCUMENT, one) for one in traces]
    files.close()
    return done


def ids(folder):
    return {path.name: [record.id for record in read_traces(path)] for path in trace_files(folder)}


def test_a_continued_evaluation_goes_on_with_the_same_file(tmp_path):
    written(tmp_path, trace(0))
    written(tmp_path, trace(1))
    assert ids(tmp_path) == {"50.jsonl": ["d", "50-0-0", "50-1-0"]}


def test_what_is_asked_again_is_there_once(tmp_path):
    written(tmp_path, trace(0, response="first"), trace(1), asked={"50": ["50-0-0", "50-1-0"]})
    written(tmp_path, trace(0, response="second"))
    assert ids(tmp_path) == {"50.jsonl": ["d", "50-1-0", "50-0-0"]}
    assert list(read_traces(tmp_path / "trajectories" / "50.jsonl"))[-1].response == "second"


@pytest.mark.parametrize("first", [("50", "200", "800"), ("50",), ("800",)], ids=",".join)
def test_the_bound_holds_over_continued_evaluations(tmp_path, first):
    def ask(*lengths):
        written(tmp_path, *(trace(n, length, "x" * 100) for n in range(90) for length in lengths), bound=9_000,
                asked={length: [f"{length}-{n}-0" for n in range(90)] for length in lengths})
        return {path.stem: path.stat().st_size for path in trace_files(tmp_path)}

    before = ask(*first)
    after = ask("50", "800")
    assert sum(before.values()) <= 9_000 and sum(after.values()) <= 9_000
    assert after.get("200", 0) == before.get("200", 0) and ask("800")["800"] > 0


@pytest.mark.parametrize("rest", [b'{"kind": "traj', b'{"kind": "document", "id": "e", "sections": []}'])
def test_what_a_killed_run_left_of_a_line_is_cut_off(tmp_path, rest):
    written(tmp_path, trace(0))
    path = tmp_path / "trajectories" / "50.jsonl"
    path.write_bytes(path.read_bytes() + rest)
    written(tmp_path, trace(1))
    assert ids(tmp_path) == {"50.jsonl": ["d", "50-0-0", "50-1-0"]}


def test_each_length_has_its_share_whatever_the_others_took(tmp_path):
    files = EvaluationFiles(tmp_path, {"50": [], "200": []}, 20_000)
    for number in range(20):
        files.write(DOCUMENT, trace(number, "200", "x" * 2000))
    assert not files.has_room("200") and files.has_room("50") and files.write(DOCUMENT, trace(0))
    files.close()
    sizes = {path.name: path.stat().st_size for path in trace_files(tmp_path)}
    assert sizes["200.jsonl"] <= 10_000 and ids(tmp_path)["50.jsonl"] == ["d", "50-0-0"]
    assert len(ids(tmp_path)["200.jsonl"]) == 5, "four of 2,000 characters beside their document"
