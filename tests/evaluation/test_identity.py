"""What joins an earlier run, and what is refused."""

from dataclasses import replace

import pytest

from mem_agent.agents import answer_settings
from mem_agent.config import Config
from mem_agent.evaluation.identity import check_same_run
from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.results import Run, read_run, write_run

RUN = Run(model="m", mode="rag", settings={"seed": 1}, samples=4, data={"50": "x"}, questions={"50": 7})


def test_more_lengths_join_and_fewer_samples_take_nothing_away(tmp_path):
    write_run(tmp_path, check_same_run(tmp_path, RUN))
    later = replace(RUN, samples=2, data={"100": "y"}, questions={"100": 9})
    write_run(tmp_path, check_same_run(tmp_path, later))
    assert read_run(tmp_path) == replace(RUN, data={"50": "x", "100": "y"}, questions={"50": 7, "100": 9})


def test_the_name_of_a_model_is_kept_and_may_change_with_its_folder(tmp_path):
    write_run(tmp_path, check_same_run(tmp_path, RUN))
    assert read_run(tmp_path).checkpoint is None
    named = replace(RUN, model_name="/runs/mine/hf/iter_0000099")
    write_run(tmp_path, check_same_run(tmp_path, named))
    assert read_run(tmp_path) == named and named.checkpoint == 99
    assert check_same_run(tmp_path, replace(RUN, model_name="/moved/model")).checkpoint is None


OTHERS = [
    ({"model": "n"}, "holds results of another model; set another SAVE_FILE"),
    ({"settings": {"seed": 2}}, r"holds results of another settings \(SEED was 1, is 2\); set another SAVE_FILE"),
    ({"data": {"50": "z"}}, r"50\.jsonl is of another eval_50\.json; set another SAVE_FILE"),
]


@pytest.mark.parametrize("change,message", OTHERS)
def test_anything_else_is_refused(tmp_path, change, message):
    write_run(tmp_path, RUN)
    with pytest.raises(EvalError, match=message):
        check_same_run(tmp_path, replace(RUN, **change))


# --- settings --------------------------------------------------------------------------------------------------------


def made_with(**settings):
    config = Config(**settings)
    return replace(RUN, mode=config.eval_mode, settings=answer_settings(config))


def joins(tmp_path, before, now):
    write_run(tmp_path, before)
    try:
        check_same_run(tmp_path, now)
    except EvalError as error:
        return str(error).partition("(")[2].partition(")")[0]
    return True


AGENT_S = [("memagent", {"mem_parallel": 8}, True), ("memagent", {"mem_recall": "bm25"}, True),
           ("parallel", {"mem_recall": "bm25"}, True), ("parallel", {"mem_parallel": 8}, "MEM_PARALLEL was 4, is 8"),
           ("rememr1", {"mem_recall": "bm25"}, "MEM_RECALL was 'tfidf', is 'bm25'"),
           ("rememr1", {"mem_alpha": 0.1}, True)]


@pytest.mark.parametrize("agent,change,found", AGENT_S, ids=str)
def test_a_setting_counts_where_the_agent_reads_it(agent, change, found, tmp_path):
    assert joins(tmp_path, made_with(agent=agent), made_with(agent=agent, **change)) == found


ALL = ("recurrent", "direct", "rag")
MODES = [
    ("recurrent", {"mem_chunk_tokens": 7}, "MEM_CHUNK_TOKENS was 2048, is 7"),
    ("direct", {"mem_chunk_tokens": 7, "agent": "gated", "mem_prompts": "", "mem_query_blind": True}, True),
    ("rag", {"mem_chunk_tokens": 7, "agent": "gated"}, True),
    ("recurrent", {"eval_top_k": 3, "eval_retriever": "embedding"}, True),
    ("direct", {"eval_top_k": 3}, True),
    ("rag", {"eval_top_k": 3}, "EVAL_TOP_K was 10, is 3"),
    ("recurrent", {"engine_max_len": 9}, True),
    ("rag", {"engine_max_len": 9}, True),
    ("direct", {"engine_max_len": 9}, "ENGINE_MAX_LEN was 0, is 9"),
    *((mode, {"eval_temperature": 0.0}, "EVAL_TEMPERATURE was 0.7, is 0.0") for mode in ALL),
    *((mode, {"task": "ruler"}, "TASK was 'qa', is 'ruler'") for mode in ALL),
    *((mode, {"mem_max_final": 9}, "MEM_MAX_FINAL was 256, is 9") for mode in ALL),
    *((mode, {"eval_answer": "whole"}, "EVAL_ANSWER was 'auto', is 'whole'") for mode in ALL),
    *((mode, {"reward": "a:B", "lr": 1.0, "mem_turn_cost": 0.5, "save_path": "x"}, True)
      for mode in ALL),
]


@pytest.mark.parametrize("mode,change,found", MODES, ids=str)
def test_the_mode_decides_what_shapes_an_answer(mode, change, found, tmp_path):
    assert joins(tmp_path, made_with(eval_mode=mode), made_with(eval_mode=mode, **change)) == found


def test_one_mode_never_joins_another(tmp_path):
    assert "EVAL_MODE was 'recurrent', is 'direct'" in joins(tmp_path, made_with(), made_with(eval_mode="direct"))


def test_prompts_and_classes_count_by_what_their_files_hold(tmp_path):
    (prompts := tmp_path / "p.yaml").write_text("final: one")
    (source := tmp_path / "own.py").write_text("class Task: pass")
    settings = {"mem_prompts": str(prompts), "task": f"{source}:Task"}
    before = made_with(**settings)
    assert joins(tmp_path, before, made_with(**settings)) is True
    prompts.write_text("final: two")
    assert joins(tmp_path, before, made_with(**settings)) == "MEM_PROMPTS was 'final: one', is 'final: two'"
    prompts.write_text("final: one")
    source.write_text("class Task: more = 1")
    assert joins(tmp_path, before, made_with(**settings)).startswith("TASK was '")


SHOWN = [("recurrent", "final: a", "final: b", "MEM_PROMPTS was 'final: a', is 'final: b'"),
         ("direct", "direct: a {section} {problem}", "direct: b {section} {problem}",
          "MEM_PROMPTS was 'a {section} {problem}', is 'b {section} {problem}'"),
         ("rag", "rag: a {section} {problem}", "direct: a {section} {problem}",
          "MEM_PROMPTS was 'a {section} {problem}', is ''"),
         ("direct", "direct: a {section} {problem}", "direct: a {section} {problem}\nfinal: b", True),
         ("rag", "rag: a {section} {problem}", "direct: b\nrag: 'a {section} {problem}' # same", True)]


@pytest.mark.parametrize("mode,before,now,found", SHOWN, ids=str)
def test_of_prompts_what_a_mode_shows_counts(mode, before, now, found, tmp_path):
    (prompts := tmp_path / "p.yaml").write_text(before)
    made = made_with(eval_mode=mode, mem_prompts=str(prompts))
    prompts.write_text(now)
    assert joins(tmp_path, made, made_with(eval_mode=mode, mem_prompts=str(prompts))) == found
