"""How an answer is read from a reply (EVAL_ANSWER), and what of a question's row is used when it is so read.

=================  ====================================================================================
``auto``           as the row's task reads: the last box; for RULER's tasks the whole reply
``boxed``          the last box
``the_answer_is``  behind the last "the answer is": MemAgent's evaluation, on RULER's tasks too
``whole``          all of the reply
=================  ====================================================================================

RULER has the model go on from an answer prefix, shows a solved example before some documents, and ends a reply after
few tokens. A row may bring these three (``answer_prefix``, ``example``, ``tokens_to_generate``). They are used where
the reply is read whole and only there: a reply that has to name its answer in a form needs its beginning and its
length, and MemAgent, whose form that is, uses none of the three. Where a model thinks first, neither prefix nor limit
fits what it begins with, and MEM_MAX_FINAL holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..agents import BASELINES, check_agent
from ..config import Config
from ..rewards.boxed import last_boxed
from ..rewards.the_answer_is import the_answer_is
from ..tasks import Task, TaskRow
from .questions import EvalQuestion

READERS: Mapping[str, Callable[[str], str]] = {
    "boxed": lambda reply: last_boxed(reply) or "",
    "the_answer_is": lambda reply: the_answer_is(reply) or "",
    "whole": str,
}
"""EVAL_ANSWER but for ``auto``; where nothing is found the answer is empty, and wrong."""


def reads_whole(task: Task, config: Config) -> bool:
    return config.eval_answer == "whole" or (config.eval_answer == "auto" and task.reads_whole)


def unasked_form(config: Config) -> str:
    """What makes every answer wrong: EVAL_ANSWER=the_answer_is under prompts that ask for another form; or nothing."""
    if config.eval_answer != "the_answer_is":
        return ""
    prompts = check_agent(config)
    mode = BASELINES.get(config.eval_mode)
    shown = [prompts.own[mode.name]] if mode else [prompts.final, *prompts.own.values()]
    if any("answer is" in text.lower() for text in shown):
        return ""
    return ("EVAL_ANSWER=the_answer_is, but no prompt asks for that form, so every answer may count as wrong; set "
            "MEM_PROMPTS (mem-agent templates --of memagent-eval), or EVAL_ANSWER=boxed")


def as_asked(question: EvalQuestion, task: Task, config: Config, *, thinks: bool) -> EvalQuestion:
    """The question with what of its row is used; ``thinks`` where the model's replies begin with thinking."""
    if not reads_whole(task, config):
        return replace(question, answer_prefix="", example="", tokens_to_generate=0)
    return replace(question, answer_prefix="", tokens_to_generate=0) if thinks else question


def read(task: Task, reply: str, row: TaskRow, config: Config) -> tuple[str, Mapping[str, float]]:
    """The answer in a final reply, and what the task measures of it; whatever a user's task raises comes through."""
    if config.eval_answer == "auto":
        return task.read_answer(reply), task.metrics(reply, row)
    answer = READERS[config.eval_answer](reply)
    return answer, task.of_answers().metrics(answer, row)
