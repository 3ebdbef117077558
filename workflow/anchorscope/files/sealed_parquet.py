"""Parquet files that are whole, or refused with an error that names them.

A file carries a checksum of every block of its data and a seal of its footer. The checksums, under the metadata key
`anchorscope_checks`, are the size of a block and the CRC-32 of each, so that only what is read has to be checked.
Arrow's own checksums leave out the headers of the pages, where a single wrong bit can go unnoticed. The seal, under
`anchorscope_seal`, is the SHA-256 of everything after the data, with zeros in place of the seal itself.
"""

import base64
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anchorscope.files.atomic import atomic
from anchorscope.files.bundled import run_command
from anchorscope.files.identity import canonical_json, versions

PROVENANCE, CHECKS, SEAL = "anchorscope", "anchorscope_checks", "anchorscope_seal"
SUM = np.dtype("<u4")
UNSEALED = "0" * 64
# A key, the mark of the text that follows, and its length: matched without parsing what may be damaged.
SEALED = re.compile(SEAL.encode() + rb"\x18\x40([0-9a-f]{64})")
MAGIC = b"PAR1"
BLOCK = 2**18  # bytes per checksum
SUMMERS = 2  # threads that compute checksums of what one thread writes; a single one is slower than a disk
CHECKERS = 4  # threads that verify what was read
PUSHED = 2**24  # bytes; a row group of at least this size is flushed to the disk at once, not at the end
COMPRESSION = "zstd"


class DamagedFileError(ValueError):
    """A Parquet file has changed since it was written, or was never finished."""

    def __init__(self, path: Path | str, why: str):
        super().__init__(
            f"{path} is damaged ({why}); make it again, with the options of your run: {command_to_remake([path])}"
        )
        self.why = why


def command_to_remake(paths: Iterable[Path | str]) -> str:
    return run_command("--forcerun", *map(str, paths))


class SealedWriter:
    """Writes tables into a Parquet file, one row group each; only `close` seals it.

    While a row group is written, other threads compute the checksums of the one before from the page cache, and flush
    it to the disk.
    """

    def __init__(self, path: Path | str, schema: pa.Schema, **options: object):
        metadata = {key: value for key, value in (schema.metadata or {}).items() if key.decode() not in (CHECKS, SEAL)}
        self.path = path
        self.writer = pq.ParquetWriter(path, schema.with_metadata(metadata), **options)
        self.threads = ThreadPoolExecutor(SUMMERS)
        self.sums: list[Future] = []
        self.summed = 0  # bytes

    def write_table(self, table: pa.Table) -> None:
        self.writer.write_table(table)
        self._sum_up_to(os.path.getsize(self.path) // BLOCK * BLOCK)

    def _sum_up_to(self, end: int) -> None:
        self.sums.append(self.threads.submit(_sums, self.path, self.summed, end))
        self.summed = end

    def close(self) -> None:
        self._sum_up_to(os.path.getsize(self.path))
        sums = np.concatenate([some.result() for some in self.sums])
        text = f"{BLOCK}:{base64.b64encode(sums.tobytes()).decode()}"
        self.writer.add_key_value_metadata({CHECKS: text, SEAL: UNSEALED})
        self.abandon()
        _seal(self.path, self.summed)

    def abandon(self) -> None:
        """Close the file without a seal."""
        self.threads.shutdown()
        self.writer.close()


def _sums(path: Path | str, start: int, end: int) -> np.ndarray:
    """The CRC-32 of each block between two offsets of a file; a large part is flushed to the disk as well."""
    with open(path, "rb") as file:
        file.seek(start)
        blocks = (file.read(min(BLOCK, end - offset)) for offset in range(start, end, BLOCK))
        sums = np.array([zlib.crc32(block) for block in blocks], SUM)
        if end - start >= PUSHED:
            os.fsync(file.fileno())
        return sums


def _seal(path: Path | str, start: int) -> None:
    """Write the seal into a footer that begins at `start`."""
    with open(path, "r+b") as file:
        file.seek(start)
        footer = file.read()
        unsealed = cast(re.Match[bytes], SEALED.search(footer))
        file.seek(start + unsealed.start(1))
        file.write(hashlib.sha256(footer).hexdigest().encode())


@contextmanager
def sealed(target: Path | str, schema: pa.Schema, metadata: dict[str, str]) -> Iterator[SealedWriter]:
    """Yield a writer of `target`, which exists, sealed and with `metadata`, only if the block succeeds."""
    with atomic(target) as temporary:
        described = schema.with_metadata({**(schema.metadata or {}), **metadata})
        writer = SealedWriter(temporary, described, compression=COMPRESSION)
        try:
            yield writer
        except BaseException:
            writer.abandon()
            raise
        writer.close()


def write_table(target: Path | str, table: pa.Table, metadata: dict[str, str]) -> None:
    with sealed(target, table.schema, metadata) as writer:
        writer.write_table(table)


@contextmanager
def _reading(path: Path | str) -> Iterator[BinaryIO]:
    """Open a file for reading; a file that the disk cannot read counts as damaged."""
    try:
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFileError(path, f"it cannot be read: {error.strerror}") from error


def _footer(path: Path | str) -> tuple[pq.FileMetaData, int]:
    """The metadata in a file's footer, once that is known to be whole, and the offset at which it begins."""
    with _reading(path) as file:
        first = file.read(len(MAGIC))
        if not first:
            raise DamagedFileError(path, "it is empty")
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        last = file.read()
        start = size - 8 - int.from_bytes(last[:4], "little")
        if first != MAGIC or last[4:] != MAGIC or start < 0:
            raise DamagedFileError(path, "its beginning or end is missing")
        file.seek(start)
        footer = file.read()
    seal = SEALED.search(footer)
    if not seal:
        raise DamagedFileError(path, "it has no seal: it was written before there were seals, or is broken")
    unsealed = footer[: seal.start(1)] + UNSEALED.encode() + footer[seal.end(1) :]
    if hashlib.sha256(unsealed).hexdigest().encode() != seal[1]:
        raise DamagedFileError(path, "its footer does not match its seal")
    return pq.read_metadata(pa.BufferReader(MAGIC + footer)), start


class SealedFile:
    """A file whose footer is whole; every block of its data is checked before the first byte of it is used."""

    def __init__(self, path: Path | str):
        self.path = path
        self.metadata, self.end = _footer(path)
        block, text = self.metadata.metadata[CHECKS.encode()].decode().split(":")
        self.block, self.sums = int(block), np.frombuffer(base64.b64decode(text), SUM)
        if len(self.sums) != -(-self.end // self.block):
            raise DamagedFileError(path, "a part of it is missing")
        self.checked = np.zeros(len(self.sums), bool)
        self.file = pq.ParquetFile(path, metadata=self.metadata)
        self.schema = self.file.schema_arrow

    def read(self, columns: list[str] | None = None) -> pa.Table:
        everything = [(0, self.end)]
        self.check(everything if columns is None else [stretch for name in columns for stretch in self.stretches[name]])
        return self.file.read(columns)

    @cached_property
    def stretches(self) -> dict[str, list[tuple[int, int]]]:
        """The stretches of the file that hold each column, one per row group, as first and last offset."""
        stretches: dict[str, list[tuple[int, int]]] = {name: [] for name in self.schema.names}
        tops = [self.metadata.schema.column(leaf).path.split(".")[0] for leaf in range(self.metadata.num_columns)]
        groups = map(self.metadata.row_group, range(self.metadata.num_row_groups))
        for group in (group for group in groups if group.num_rows):  # one without rows has no pages
            for leaf, name in enumerate(tops):
                chunk = group.column(leaf)
                start = min(filter(None, [chunk.dictionary_page_offset, chunk.data_page_offset]))
                stretches[name].append((start, start + chunk.total_compressed_size))
        return stretches

    def check(self, stretches: list[tuple[int, int]]) -> None:
        """Compare the blocks that hold the given stretches with their checksums; a block is compared only once."""
        wanted = np.zeros_like(self.checked)
        for start, end in stretches:
            wanted[start // self.block : -(-end // self.block)] = True
        unseen = np.flatnonzero(wanted & ~self.checked)
        with _reading(self.path) as file, ThreadPoolExecutor(CHECKERS) as pool:
            whole = pool.map(lambda number: self._is_whole(file, int(number)), unseen)
            for number, fine in zip(unseen, whole, strict=True):
                if not fine:
                    start = int(number) * self.block
                    end = min(start + self.block, self.end)
                    raise DamagedFileError(self.path, f"its bytes {start} to {end} do not match their checksum")
                self.checked[number] = True

    def _is_whole(self, file: BinaryIO, number: int) -> bool:
        offset = number * self.block
        data = os.pread(file.fileno(), min(self.block, self.end - offset), offset)
        return zlib.crc32(data) == self.sums[number]


def read_table(path: Path | str, columns: list[str] | None = None) -> pa.Table:
    return SealedFile(path).read(columns)


def read_metadata(path: Path | str) -> pq.FileMetaData:
    """The metadata in the footer; the data are not read."""
    return _footer(path)[0]


def provenance(**made_from: object) -> dict[str, str]:
    """Metadata with the inputs, settings and library versions that a file was made from."""
    return {PROVENANCE: canonical_json({**made_from, "versions": versions()})}


def made_from(path: Path | str) -> dict:
    """What `provenance` put into a file."""
    return json.loads(read_metadata(path).metadata[PROVENANCE.encode()])


def check(path: Path | str) -> None:
    """Read a whole file and raise DamagedFileError if any byte has changed since it was written."""
    file = SealedFile(path)
    file.check([(0, file.end)])
