"""A run's and an evaluation's trajectories with a story that tests know by heart, and some that attack their reader.

Ann's box is of silver, which section 2 says. Sample 0 notes it in turn 2, loses it in turn 4 and answers nothing;
sample 1 keeps it and answers; sample 2 failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from mem_agent.hooks.traces import FOLDER, Trace, TraceDocument, TraceTurn, line_of

SECTIONS = ("Ann keeps the metal box.", "Ann's box is of Silver, they said.", "Bo sleeps.", "Bo wakes, Bo eats.")
QUESTION, GOLDS = "Which metal is Ann's box of?", ("silver", "the Argentum")
LOSES = ("Ann: metal", "Ann: metal silver", "Ann: metal silver", "Ann: metal, Bo eats")
KEEPS = ("Ann: metal", "Ann: silver box", "Ann: silver box", "Ann: silver box")
HOSTILE = (
    "</script><script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"
    "<!-- <b>bold</b> {{ 7 * 7 }} \\u003c/script> \x1b[31mred\x1b]0;title\x07 \u202etxt.exe\u202c javascript:alert(1)"
)


def turns_of(memories: Sequence[str], answer: str) -> tuple[TraceTurn, ...]:
    """A memory turn for each section, then the final one."""
    shown = ("", *memories)
    turns = [
        TraceTurn(kind="memory", sections=(at,), shown_memory=shown[at], reply=memory, memory=memory,
                  prompt_tokens=90 + at, cached_tokens=80, advantage=-0.25, rewards={"recall": 0.5} if at == 1 else {},
                  **tokens_of(memory))
        for at, memory in enumerate(memories)
    ]
    final = TraceTurn(kind="final", shown_memory=shown[-1], memory=shown[-1], reply=f"\\boxed{{{answer}}}",
                      prompt_tokens=40, stop="length", **tokens_of(f"\\boxed{{{answer}}}"))
    return (*turns, final)


def tokens_of(text: str) -> dict[str, tuple]:
    """Four characters a token, each half as likely as the one before: 0.99, 0.49, 0.24, ... down to 0.002."""
    pieces = tuple(text[at : at + 4] for at in range(0, len(text), 4))
    return {"pieces": pieces, "log_probs": tuple(-0.01 - 0.7 * (at % 10) for at in range(len(pieces)))}


def group_of(rollout: int | None = 12, name: str = "41", length: str | None = None, **more: object) -> list:
    """The document and the three siblings; ``more`` replaces fields of all."""
    where, document = rollout if length is None else length, TraceDocument(id=f"d{name}", sections=SECTIONS)
    trained = {"rollout": rollout, "agent": "memagent", "task": "qa", "weight_version": str(rollout)}
    shared = trained | {"length": length, "question_id": name, "group": name, "question": QUESTION,
                        "golds": GOLDS, "document": document.id} | more
    scores = {"sub_em": 0.0} if length else {}
    loses = Trace(id=f"{where}-{name}-0", sample=0, turns=turns_of(LOSES, ""), response="\\boxed{}", reward=0.0,
                  reward_parts={"answer": 0.0, "length": -0.125}, accuracy=0.0, advantage=-0.5, scores=scores,
                  **shared)
    keeps = Trace(id=f"{where}-{name}-1", sample=1, turns=turns_of(KEEPS, "silver"), response="\\boxed{silver}",
                  prediction="silver", reward=1.0, reward_parts={"answer": 1.0}, accuracy=1.0, advantage=0.5,
                  scores=dict.fromkeys(scores, 1.0), **shared)
    failed = Trace(id=f"{where}-{name}-2", sample=2, failure="EngineError", failure_message="no answer <60 s>",
                   outcome="failed", turns=turns_of(LOSES[:2], "")[:2], **shared)
    return [document, loses, keeps, failed]


def hostile_group(rollout: int = 12, question: str = "666") -> list:
    """Every text of it is markup, a terminal's control sequence, or both."""
    document = TraceDocument(id="hostile", sections=(HOSTILE, HOSTILE))
    turns = turns_of((HOSTILE, f"{HOSTILE} more"), HOSTILE)
    return [document, Trace(
        id="12-666-0", rollout=rollout, question_id=question, group=HOSTILE, question=HOSTILE, golds=(HOSTILE, "red"),
        document="hostile", response=HOSTILE, prediction=HOSTILE, outcome=HOSTILE, failure=HOSTILE, task=HOSTILE,
        failure_message=HOSTILE, reward_parts={HOSTILE: 1.0, "__proto__": 2.0}, scores={HOSTILE: 1.0}, agent=HOSTILE,
        turns=turns,
    )]


def write(folder: Path, stem: str, records: Iterable[TraceDocument | Trace]) -> Path:
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    (folder / FOLDER / f"{stem}.jsonl").write_bytes(b"".join(map(line_of, records)))
    return folder


def write_small_run(folder: Path) -> Path:
    """Rollout 0 with question 7, rollout 12 with questions 41, 100 and 9 (the last with a hostile neighbour)."""
    write(folder, "rollout_000000", group_of(0, "7", question="Which box was first?"))
    later = [*group_of(12, "100", question="Is this the hundredth?"), *group_of(12, "41"), *group_of(12, "9")]
    return write(folder, "rollout_000012", later + hostile_group())


def write_small_results(folder: Path) -> Path:
    write(folder, "200", group_of(None, "7", "200"))
    return write(folder, "50", [*group_of(None, "7", "50"), *group_of(None, "8", "50")])
