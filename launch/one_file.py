"""Hosts read their prompts from one file: shards are copied into one, ``SAVE_PATH/launch/train.parquet``.

The copy is made of row groups, one in memory at a time, so rows and their order are those of the shards. It is made
again where the shards have changed, which their names, sizes and times tell (``train.parquet.of`` beside it).
Documents stay where they are; a link beside the copy leads to them.
"""

from __future__ import annotations

from pathlib import Path

import orjson

from ..config import Config, ConfigError
from ..data.document_store import row_slice, store_folder, without_slice
from ..data.shards import is_sharded, training_files
from ..system.files import replacing, write_atomically


def prompt_file(config: Config) -> str:
    """The file that the host is given; it need not be there yet. Raises ConfigError for a slice of shards."""
    if row_slice(config.train_data) != slice(None) and is_sharded(without_slice(config.train_data)):
        raise ConfigError(f"TRAIN_DATA={config.train_data!r}: a slice is of one file; name a file, or all shards")
    if not is_sharded(config.train_data):
        return config.train_data
    return str(Path(config.save_path) / "launch" / "train.parquet")


def join_shards(config: Config) -> None:
    """Write ``prompt_file``, unless it is the user's own or there already. Raises ConfigError, ShardError."""
    target = Path(prompt_file(config))
    if not is_sharded(config.train_data):
        return
    files = training_files(config.train_data)
    target.parent.mkdir(parents=True, exist_ok=True)
    documents = store_folder(target)
    documents.unlink(missing_ok=True)
    documents.symlink_to(store_folder(config.train_data).absolute())
    made_of = orjson.dumps([[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files])
    note = target.with_name(f"{target.name}.of")
    if target.is_file() and note.is_file() and note.read_bytes() == made_of:
        return
    note.unlink(missing_ok=True)
    _copy(files, target)
    write_atomically(note, made_of)


def _copy(files: tuple[Path, ...], target: Path) -> None:
    import pyarrow.parquet as pq

    schema = pq.read_schema(files[0])
    with replacing(target) as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for path in files:
            with pq.ParquetFile(path) as shard:
                if shard.schema_arrow != schema:
                    raise ConfigError(f"TRAIN_DATA: {path} has other columns than {files[0].name}; a host reads both "
                                      "as one file, so prepare them together")
                for group in range(shard.num_row_groups):
                    writer.write_table(shard.read_row_group(group))
