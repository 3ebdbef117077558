"""Parquet files that are whole, or refused by name.

A file carries running checksums of its data and a seal of its footer. The checksums, under the metadata key
`anchorscope_checks`, are the CRC-32 of the file's bytes up to each place at which a page or its header ends; so any
stretch between two of these places can be checked alone, as it is read and before it is parsed. Arrow's own checksums
leave out the headers of the pages, where a single wrong bit can go unnoticed. The seal, under `anchorscope_seal`,
is the SHA-256 of everything behind the data, with zeros in the seal's own place.
"""

import base64
import hashlib
import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anchorscope.files import atomic

CHECKS, SEAL = "anchorscope_checks", "anchorscope_seal"
ENDS = np.dtype([("place", "<u8"), ("crc", "<u4")])
UNSEALED = "0" * 64
# A key, the mark of the text that follows, and its length: found without parsing what may be damaged.
SEALED = re.compile(SEAL.encode() + rb"\x18\x40([0-9a-f]{64})")
MAGIC = b"PAR1"
BLOCK = 2**24  # bytes of a file that are checked at a time
COMPRESSION = "zstd"


class DamagedFileError(ValueError):
    """A Parquet file is not as it was written."""

    def __init__(self, path: Path | str, why: str):
        super().__init__(
            f"{path} is damaged ({why}); make it again, with the options of your run: {command_to_remake([path])}"
        )
        self.why = why


def command_to_remake(paths: Iterable[Path | str]) -> str:
    return f"snakemake --cores all --forcerun {' '.join(map(str, paths))}"


class SealedWriter:
    """Writes tables into a Parquet file, a row group each; only `close` seals it."""

    def __init__(self, path: Path | str, schema: pa.Schema, **options: object):
        about = {key: value for key, value in (schema.metadata or {}).items() if key.decode() not in (CHECKS, SEAL)}
        self.sink = _Sink(path)
        self.writer = pq.ParquetWriter(self.sink, schema.with_metadata(about), **options)

    def write_table(self, table: pa.Table) -> None:
        self.writer.write_table(table)

    def close(self) -> None:
        ends = np.array(self.sink.ends, ENDS)
        self.writer.add_key_value_metadata({CHECKS: base64.b64encode(ends.tobytes()).decode(), SEAL: UNSEALED})
        self.sink.footer = bytearray()
        self.writer.close()
        self.sink.seal()
        self.sink.close()

    def abandon(self) -> None:
        """Leave the file without a seal."""
        self.writer.close()
        self.sink.close()


class _Sink(io.BufferedWriter):
    """A file that keeps the running checksum of its data, and holds the footer back."""

    def __init__(self, path: Path | str):
        super().__init__(io.FileIO(path, "w"))
        self.place = self.crc = 0
        self.ends = [(0, 0)]
        self.footer: bytearray | None = None

    def tell(self) -> int:
        return self.place

    def write(self, data: bytes) -> int:
        self.place += len(data)
        if self.footer is None:
            self.crc = zlib.crc32(data, self.crc)
            self.ends.append((self.place, self.crc))
            return super().write(data)
        self.footer += data
        return len(data)

    def seal(self) -> None:
        """Write the footer with the seal in its place."""
        footer, self.footer = bytes(self.footer), None
        start, end = SEALED.search(footer).span(1)
        super().write(footer[:start] + hashlib.sha256(footer).hexdigest().encode() + footer[end:])


@contextmanager
def sealed(target: Path | str, schema: pa.Schema, about: dict[str, str]) -> Iterator[SealedWriter]:
    """Yield a writer of a file that is there, sealed and with `about` in its metadata, only if the block succeeds."""
    with atomic(target) as temporary:
        described = schema.with_metadata({**(schema.metadata or {}), **about})
        writer = SealedWriter(temporary, described, compression=COMPRESSION)
        try:
            yield writer
        except BaseException:
            writer.abandon()
            raise
        writer.close()


def write_table(target: Path | str, table: pa.Table, about: dict[str, str]) -> None:
    with sealed(target, table.schema, about) as writer:
        writer.write_table(table)


@dataclass(frozen=True)
class _Outline:
    """What the footer of a file says, once it is known to be whole."""

    metadata: pq.FileMetaData
    ends: np.ndarray  # of ENDS, in the order of their places


def _outline(path: Path | str) -> _Outline:
    with open(path, "rb") as file:
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
    metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer))
    ends = np.frombuffer(base64.b64decode(metadata.metadata[CHECKS.encode()]), ENDS)
    if ends[-1]["place"] != start:
        raise DamagedFileError(path, "a part of it is missing")
    return _Outline(metadata, ends)


class _Checked(io.BufferedReader):
    """A file of which no data are given out before the pages around them have matched their checksums."""

    def __init__(self, path: Path | str, ends: np.ndarray):
        super().__init__(io.FileIO(path))
        self.path = path
        self.places, self.sums = ends["place"].astype(np.int64), ends["crc"]

    def read(self, size: int) -> bytes:
        start = self.tell()
        end = start + size
        first = int(np.searchsorted(self.places, start, "right")) - 1
        last = int(np.searchsorted(self.places, end))
        before, behind = int(self.places[first]), int(self.places[last])
        self.seek(before)
        block = super().read(behind - before)
        if zlib.crc32(block, int(self.sums[first])) != self.sums[last]:
            raise DamagedFileError(self.path, f"its bytes {before} to {behind} do not match their checksum")
        self.seek(end)
        return block[start - before : end - before]


def open_sealed(path: Path | str) -> pq.ParquetFile:
    """Open a file whose footer is whole; what is read of its data is checked as it is read."""
    outline = _outline(path)
    return pq.ParquetFile(pa.PythonFile(_Checked(path, outline.ends), "r"), metadata=outline.metadata)


def read_table(path: Path | str, columns: list[str] | None = None) -> pa.Table:
    file = open_sealed(path)
    try:
        return file.read(columns)
    finally:
        file.close(force=True)


def read_metadata(path: Path | str) -> pq.FileMetaData:
    """What the footer says; the data are not looked at."""
    return _outline(path).metadata


def made_from(path: Path | str) -> dict:
    """What `files.provenance` wrote into a file."""
    return json.loads(read_metadata(path).metadata[b"anchorscope"])


def check(path: Path | str) -> None:
    """Read a whole file, and raise DamagedFileError if a byte of it is not as it was written."""
    last = _outline(path).ends[-1]
    left, crc = int(last["place"]), 0
    with open(path, "rb") as file:
        while left and (block := file.read(min(left, BLOCK))):
            crc = zlib.crc32(block, crc)
            left -= len(block)
    if crc != last["crc"]:
        raise DamagedFileError(path, "its data do not match their checksum")
