"""Stages without Ray: the same workers, in this process."""

import asyncio

import pyarrow as pa

from mem_agent.memsifter import embed, run_stage
from mem_agent.memsifter.files import open_table, read_batches
from mem_agent.system.errors import MemAgentError


def without_ray(monkeypatch):
    monkeypatch.setattr(run_stage, "ask", ask)
    monkeypatch.setattr(embed, "embedded", embedded)


def ask(source, worker, cluster, concurrency, rows):
    async def asked():
        made = run_stage.RowWorker(*worker)
        tables = [pa.Table.from_batches([batch]) for batch in read_batches(source)]
        return await asyncio.gather(*(anext(made(table)) for table in tables))

    for found in asyncio.run(asked()):
        if found["error"][0]:
            raise MemAgentError(found["error"][0])
        yield found["finished"][0]


def embedded(texts, model, cluster):
    worker = embed.TextWorker(model)
    with open_table(texts) as file:
        for batch in file.iter_batches(8):
            found = worker({"text": batch["text"].to_pylist()})
            yield found["text"], found["vector"]
