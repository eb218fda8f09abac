"""Stages without Ray: the same workers, in this process."""

import argparse
import asyncio

import pyarrow as pa

from mem_agent.memsifter import stages
from mem_agent.system.errors import MemAgentError

HERE = argparse.Namespace(ray="local", workers=1, gpus=0.0, limit=None)
"""Options of a stage."""


def without_ray(monkeypatch):
    monkeypatch.setattr(stages, "ask", ask)


def ask(source, worker, given, concurrency, resources):
    async def asked():
        made = stages.RowWorker(*worker)
        tables = [pa.Table.from_batches([batch]) for batch in stages.read_batches(source)]
        return await asyncio.gather(*(anext(made(table)) for table in tables))

    for found in asyncio.run(asked()):
        if found["error"][0]:
            raise MemAgentError(found["error"][0])
        yield found["finished"][0]
