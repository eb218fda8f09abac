"""Files of the sifter's stages and the states of rewards, continued by whoever was given the folder."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from mem_agent.config import Config
from mem_agent.rewards.answer_utility import AnswerUtility, AnswerUtilitySettings
from mem_agent.sessions.table import BadRow, question_of
from mem_agent.sessions.wording import load_wording
from mem_agent.sifter.blocks.block_reader import BlockReader, open_table, read_rows
from mem_agent.sifter.blocks.block_run import BlockRun, part_name, row_digests, row_key
from mem_agent.sifter.blocks.output_file import data_of, identity_of, row_keys
from mem_agent.sifter.blocks.row_journal import RowJournal
from mem_agent.sifter.blocks.run_blocks import rows_left, run_blocks
from mem_agent.sifter.blocks.worker import Row, Worker
from mem_agent.sifter.rounds.rank_rows import Prompting, evaluation_entry
from mem_agent.sifter.rounds.round_plan import rankings_name
from mem_agent.sifter.rounds.round_rows import Input, Tested, made_rows, usable_rows
from mem_agent.sifter.stages.ranking_prompt import NoRoom, ranking_prompt
from mem_agent.sifter.stages.ranking_summary import summary
from mem_agent.sifter.stages.shown_sessions import Method, Order, session_tokens, shown, similarities
from mem_agent.sifter.table.sifter_table import sifter_scores
from mem_agent.tests.fuzz.target import Target, scratch, written
from mem_agent.tests.helpers.intrinsic import answer
from mem_agent.tests.helpers.sifter_files import chat_row, ranking_row

CONFIG = Config()
KINDS = ("embed", "ranking", "chat")
_NO_ROWS = (pa.ArrowException, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What JSON raises that is no rows of one kind, so that no file has them."""


def _rows(data: bytes) -> None:
    """JSON of rows, as a file of whatever columns they make."""
    try:
        table = pa.Table.from_pylist(json.loads(data))
    except _NO_ROWS:
        return
    out = io.BytesIO()
    try:
        pq.write_table(table, out)
    except pa.ArrowException:
        return
    _stages(out.getvalue())


def _stages(data: bytes) -> None:
    """The file as input of every stage behind the one that wrote it."""
    for kind in KINDS:
        path = written(f"results/gpt/m/d_test_{kind}.parquet", data)
    for name in (data_of, identity_of, row_keys):
        name(path)
    total = open_table(path).metadata.num_rows
    rows = BlockReader(path, 4, total).rows(0) if total > 0 else []
    row_digests(rows)
    list(read_rows(path, ["question", "answers"], 2))
    for row in rows:
        _asked(row)
    sifter_scores(scratch() / "results")
    summary(path)
    _round(path)


def _asked(row: Mapping[str, Any]) -> None:
    """As stages 2 and 3 show a row to a model; a bad one is told in its status."""
    with suppress(BadRow, NoRoom):
        asked = question_of(row, "stage 1")
        for order in Order:
            with suppress(BadRow):
                shown(row, asked, Method("m", order), CONFIG)
        ranking_prompt(asked, similarities(row, asked), session_tokens(row, asked), limit=9000, top_k=0,
                       wording=load_wording(), count=len)


def _round(path: Path) -> None:
    prompting = Prompting(load_wording(), len, 9000)
    for split in ("test", "train"):
        each = Input("d", split, 2, path, anchored=split == "train")
        told, order = usable_rows(each, prompting, Tested(), seed=1)
        for row in made_rows(each, order, prompting, told, recount=False):
            orjson.dumps([row.training("h"), evaluation_entry(row.training("h"))])


class _Answers(Worker):
    def __call__(self, rows: list[Row], journal: RowJournal) -> list[Row]:
        return [journal.done.get(at, {"said": "x", "status": "ok"}) for at in range(len(rows))]


def _continued(data: bytes) -> None:
    """``{"journal": [[key, row]], "part": [rows], "other": [rows], "keys": text}``, of a run that is continued."""
    try:
        found = json.loads(data)
        parts = {name: pa.Table.from_pylist(found[name]) for name in ("part", "other")}
        lines = b"".join(orjson.dumps(line) + b"\n" for line in found["journal"])
        said = {"mem_agent.rows": found["keys"].encode()}
    except _NO_ROWS:
        return
    source = written("run/in.parquet", _SOURCE)
    run = BlockRun(source, source.with_name("out.parquet"), "v1", _ADDS, 2, 2, "status")
    run.output.unlink(missing_ok=True)
    journal = written(str(run.journal(_PART).relative_to(scratch())), lines)
    with suppress(pa.ArrowException):
        for name, table in parts.items():
            where = run.part(_PART if name == "part" else name)
            pq.write_table(table.replace_schema_metadata(said), where)
    for _ in range(2):
        rows_left(source, run.output, identity="v1", adds=_ADDS, block=2, status="status")
        run_blocks(source, run.output, _Answers, identity="v1", adds=_ADDS, block=2, status="status", describe="x")
    assert not journal.exists()


def _curriculum(data: bytes) -> None:
    name = rankings_name(written("work/curriculum.json", data).parent)
    assert Path("results", name).name == name


def _rollouts(data: bytes) -> None:
    reward = AnswerUtility(AnswerUtilitySettings(beta=1.0, warmup=2, anneal=2))
    reward.load(written("utility/rollouts.json", data).parent)
    assert 0 <= reward.beta <= 1


def _archive(path: Path, about: Any, arrays: Mapping[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("about.json", json.dumps(about))
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, (1, 0))
            archive.writestr(f"{name}.npy", content.getvalue())


def _described(data: bytes) -> tuple[Any, dict[str, Any]] | None:
    """``{"about": ..., "arrays": {name: [kind, values]}}``; None where no archive is of it."""
    try:
        found = json.loads(data)
        return found["about"], {str(name): np.array(values, np.dtype(kind)) for name, (kind, values)
                                in found["arrays"].items() if "/" not in name}
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError, SyntaxError):
        return None


def _state(file: str, make: Any) -> Any:
    """Loads an archive, and goes on as a run does: batches, numbers for the log, saved again."""

    def run(data: bytes) -> None:
        if (described := _described(data)) is None:
            return
        with suppress(UnicodeEncodeError):
            _archive(scratch() / "state" / file, *described)
        reward = make()
        reward.load(scratch() / "state")
        for _ in range(2):
            assert all(np.isfinite(list(parts.values())).all() for parts in reward.batch_parts(_BATCH))
        assert np.isfinite(list(reward.metrics().values())).all()
        (scratch() / "again").mkdir(exist_ok=True)
        reward.save(scratch() / "again")

    return run


_BATCH = [answer("What is 1 + 1?", "It is 2.", True), answer("What is 2 + 2?", "It is 5.")]


def _episodic() -> Any:
    from mem_agent.rewards.intrinsic.encoder import HashingEncoder
    from mem_agent.tests.helpers.intrinsic import episodic

    return episodic(HashingEncoder(), bits=4, keys=4, values=2, window=8)


def _texts() -> Any:
    from mem_agent.rewards.intrinsic.settings import LexicalSettings
    from mem_agent.rewards.intrinsic.text_reward import TextReward

    return TextReward(LexicalSettings())


@cache
def _saved(file: str) -> bytes:
    """What ``_described`` reads, of a state after a batch."""
    reward = {"episodic.npz": _episodic, "texts.npz": _texts}[file]()
    for _ in range(2):
        reward.batch_parts(_BATCH)
    (scratch() / "made").mkdir(exist_ok=True)
    reward.save(scratch() / "made")
    with zipfile.ZipFile(scratch() / "made" / file) as archive:
        about = json.loads(archive.read("about.json"))
    with np.load(scratch() / "made" / file) as held:
        arrays = {name: [held[name].dtype.str, held[name].tolist()] for name in held if name != "about.json"}
    return json.dumps({"about": about, "arrays": arrays}).encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


_ADDS = pa.schema({"said": pa.string(), "status": pa.string()})
_RUN_ROWS = [{"text": "a"}, {"text": "b"}]
_DIGESTS = row_digests(_RUN_ROWS)
_PART, _KEYS = part_name(0, _DIGESTS), list(map(row_key, _DIGESTS))
_SOURCE = _parquet(_RUN_ROWS)
_GOOD, _FAILED = {"said": "x", "status": "ok"}, {"said": "", "status": "gone"}
_RUN = {"journal": [[_KEYS[0], _GOOD]], "part": [_FAILED, _GOOD], "other": [_GOOD, _GOOD], "keys": "".join(_KEYS)}
_TALKED = ranking_row("q", ["a"], [0.1, 0.9, 0.3, 0.2], [0, 1], session_tokens=[9, 9, 9, 9], retrieved_memory="red")
_ROWS = [{**chat_row("q", "red"), **_TALKED}, {**chat_row("r", "blue"), **_TALKED, "question_id": "r"}]
_COLUMNS = tuple(f'"{name}"'.encode() for name in _ROWS[0])
TARGETS = (
    Target("stage_rows", _rows, (json.dumps(_ROWS).encode(),), _COLUMNS, slow=True),
    Target("stage_parquet", _stages, (_parquet(_ROWS),), (b"similarities", b"mem_agent.rows"), slow=True),
    Target("stage_continued", _continued, (json.dumps(_RUN).encode(),), (b'"status"', b'"ok"'), slow=True),
    Target("curriculum", _curriculum, (b'{"rankings": "work-1", "seed": 1}',), (b'"rankings"', b'"../x"')),
    Target("reward_rollouts", _rollouts, (b"3",), (b"1e999", b"Infinity", b"-")),
    Target("reward_texts", _state("texts.npz", _texts), (_saved("texts.npz"),),
           (b"1e999", b"NaN", b'"<f8"', b'"|u1"')),
    Target("reward_episodes", _state("episodic.npz", _episodic), (_saved("episodic.npz"),),
           (b"1e999", b"NaN", b'"<f8"', b'"|u1"', b'"<i8"')),
)
