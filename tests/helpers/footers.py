"""How often the footers of parquet files are parsed, and how many parsed ones memory holds."""

import gc
from collections import Counter
from contextlib import contextmanager

import pyarrow.parquet as pq


def footers_parsed(monkeypatch):
    """Counts by file, from now on."""
    parsed, really = Counter(), pq.ParquetFile.__init__

    def opened(self, source, *, metadata=None, **options):
        if metadata is None:
            parsed[str(getattr(source, "name", source))] += 1
        really(self, source, metadata=metadata, **options)

    monkeypatch.setattr(pq.ParquetFile, "__init__", opened)
    return parsed


@contextmanager
def footers_in_memory():
    """A function for how many more there are than before, without the garbage collector's help."""
    gc.collect()
    before = _footers()
    gc.disable()
    try:
        yield lambda: _footers() - before
    finally:
        gc.enable()


def _footers():
    return sum(isinstance(each, pq.FileMetaData) for each in gc.get_objects())
