"""Stages without Ray: the same workers, in this process."""

import argparse
import asyncio

import pyarrow as pa
import pyarrow.parquet as pq

from mem_agent.memsifter import embed, run_stage
from mem_agent.memsifter.files import read_batches
from mem_agent.system.errors import MemAgentError

HERE = argparse.Namespace(ray="local", workers=1, gpus=0.0, batch_size=8, limit=None)
"""Options of a stage."""


def without_ray(monkeypatch):
    monkeypatch.setattr(run_stage, "ask", ask)
    monkeypatch.setattr(embed, "embedded", embedded)


def ask(source, worker, given, concurrency):
    async def asked():
        made = run_stage.RowWorker(*worker)
        tables = [pa.Table.from_batches([batch]) for batch in read_batches(source)]
        return await asyncio.gather(*(anext(made(table)) for table in tables))

    for found in asyncio.run(asked()):
        if found["error"][0]:
            raise MemAgentError(found["error"][0])
        yield found["finished"][0]


def embedded(texts, encoder, given):
    for batch in pq.ParquetFile(texts).iter_batches(8):
        found = embed.TextWorker(encoder)({"text": batch["text"].to_pylist()})
        yield found["text"], found["vector"]
