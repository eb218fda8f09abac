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
    files = {path.stem: [r.group for r in read_traces(path) if isinstance(r, Trace)] for path in trace_files(run)}
    return {name.removeprefix("rollout_").lstrip("0") or "0": list(dict.fromkeys(found))
            for name, found in files.items()}


def test_the_newest_rollout_is_whole_and_the_ones_before_have_the_first_groups(tmp_path):
    for number in range(3):
        assert write_rollout(tmp_path, number, groups("a", "b", "c"), 2, PLENTY) == 3
    assert kept(tmp_path) == {"0": ["a", "b"], "1": ["a", "b"], "2": ["a", "b", "c"]}


def test_of_a_run_that_was_set_back_one_line_is_kept(tmp_path):
    for number in range(6):
        write_rollout(tmp_path, number, groups("a", "b"), 1, PLENTY)
        if number % 2 == 0:
            evaluated = tmp_path / "trajectories" / f"eval_{number:06d}_h_q.jsonl"
            evaluated.write_bytes(b"".join(map(line_of, groups("q")[0])))
    write_rollout(tmp_path, 3, groups("c", "d"), 1, PLENTY)
    assert kept(tmp_path) == {"0": ["a"], "1": ["a"], "2": ["a"], "3": ["c", "d"],
                              "eval_000000_h_q": ["q"], "eval_000002_h_q": ["q"]}
    write_rollout(tmp_path, 0, groups("e"), 1, PLENTY)
    assert kept(tmp_path) == {"0": ["e"], "eval_000000_h_q": ["q"]}


@given(bound=st.integers(200, 20_000), most=st.integers(1, 3), sizes=st.lists(
    st.lists(st.integers(0, 400), min_size=1, max_size=4), min_size=1, max_size=6))
def test_the_bound_holds_and_the_oldest_go_first(bound, most, sizes, tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    for number, lengths in enumerate(sizes):
        given_groups = [groups(str(n), text="x" * length)[0] for n, length in enumerate(lengths)]
        written = write_rollout(run, number, given_groups, most, bound)
        assert sum(path.stat().st_size for path in trace_files(run)) <= bound
        assert rollout_path(run, number).stat().st_size <= bound // 2
        found = kept(run)
        assert found[str(number)] == [str(n) for n in range(written)][: len(found[str(number)])]
        assert [int(name) for name in found] == list(range(number + 1))[-len(found) :]


def test_of_a_group_that_is_too_large_the_first_siblings_are_kept(tmp_path):
    written = write_rollout(tmp_path, 0, groups("a", "b", text="x" * 400, siblings=8), 2, 10_000)
    names = [r.sample for r in read_traces(rollout_path(tmp_path, 0)) if isinstance(r, Trace)]
    assert (written, kept(tmp_path)) == (1, {"0": ["a"]}) and 1 < len(names) < 8
    assert names == [*range(len(names))]


def test_a_full_disk_leaves_what_was_there_and_a_damaged_file_is_named(tmp_path):
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
    rollout_path(tmp_path, 0).write_text("no trace\n")
    with pytest.raises(TraceError, match=r"rollout_000000\.jsonl: line 1"):
        write_rollout(tmp_path, 1, groups("a"), 1, PLENTY)


def test_the_sample_depends_on_seed_and_rollout_alone_and_leaves_no_group_out():
    for most in (0, 2, 5, 60):
        order = sampled_first(7, 3, 5, most)
        assert order == sampled_first(7, 3, 5, most) and sorted(order) == list(range(5))
        assert order[:most] == sorted(order[:most]) and order[most:] == sorted(order[most:])
    assert len({tuple(sampled_first(seed, n, 100, 2)[:2]) for seed in (1, 2) for n in range(10)}) == 20


# --- evaluations ----------------------------------------------------------------------------------------------------

DOCUMENT = TraceDocument(id="d", sections=("text",))


def trace(number, length="50", response=""):
    return Trace(id=f"{length}-{number}-0", length=length, document="d", response=response)


def written(folder, *traces, bound=10**6):
    files = EvaluationFiles(folder, {one.length for one in traces}, bound)
    done = [files.write(DOCUMENT, one) for one in traces]
    files.close()
    return done


@pytest.mark.parametrize("rest", [b"", b'{"kind": "traj', b'{"kind": "document", "id": "e", "sections": []}'])
def test_a_continued_evaluation_goes_on_with_the_same_file(tmp_path, rest):
    written(tmp_path, trace(0), trace(1))
    path = tmp_path / "trajectories" / "50.jsonl"
    path.write_bytes(path.read_bytes() + rest)  # what a killed run left of a line
    written(tmp_path, trace(2))
    assert [record.id for record in read_traces(path)] == ["d", "50-0-0", "50-1-0", "d", "50-2-0"]


@pytest.mark.parametrize("first", [("50", "200", "800"), ("50",), ("800",)], ids=",".join)
def test_the_bound_holds_over_continued_evaluations(tmp_path, first):
    def ask(*lengths):
        written(tmp_path, *(trace(n, length, "x" * 100) for n in range(90) for length in lengths), bound=9_000)
        return {path.stem: path.stat().st_size for path in trace_files(tmp_path)}

    before = ask(*first)
    after = ask("50", "800")
    assert sum(before.values()) <= 9_000 and sum(after.values()) <= 9_000
    assert after.get("200", 0) == before.get("200", 0)


def test_each_length_has_its_share_whatever_the_others_took(tmp_path):
    files = EvaluationFiles(tmp_path, ["50", "200"], 20_000)
    done = [files.write(DOCUMENT, trace(number, "200", "x" * 2000)) for number in range(20)]
    assert done == [True] * 4 + [False] * 16
    assert not files.has_room("200") and files.has_room("50") and files.write(DOCUMENT, trace(0))
    files.close()
    assert [record.id for record in read_traces(tmp_path / "trajectories" / "50.jsonl")] == ["d", "50-0-0"]
