"""The activation store, side by side with other layouts of the same vectors on the same disk.

(a) store      ActivationWriter and ActivationReader: a Parquet column of fixed_size_binary for each vector
(b) unchecked  the same without checksums and seal, through pyarrow's own writer and reader
(c) lists      the same columns and row groups in Parquet as fixed_size_list<float16>
(d) npy        one .npy file per layer and component, [passes, positions, examples, width]

(a) and (b) hold bfloat16, which the others do not know; those hold float16 of the same size. All but (d) take the
examples batch by batch, as they come from the device; (d) needs all of them before it can write. (a) and (b) also put
what they read into the order of the ids, a copy that the others do not make.

Files are opened once, and that time is reported on its own. Nothing is synced and everything was just written, so the
page cache is warm for writing and reading: these are the costs of the layouts, not of the disk. Every vector that was
read is compared with what was written, outside the measured time. Processor seconds are those of all threads together,
and say more than the clock where the machine has other work.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from common import arguments, machine, report
from torch import Tensor

from anchorscope.extract.axes import COMPONENTS, PASSES, POSITIONS
from anchorscope.extract.store import GROUP_BYTES, ActivationReader, ActivationWriter, column

BATCH = 32  # examples that come from the device together


class Store:
    dtype = torch.bfloat16

    def write(self, folder: Path, data: Tensor) -> None:
        keys = [{"id": f"{i:08d}", "right": i % 2 == 0, "subject": None, "popularity": i} for i in range(data.shape[4])]
        shape = {"layers": data.shape[1], "width": data.shape[5]}
        with ActivationWriter(folder / "a", **shape, dtype=self.dtype, made_from={}) as writer:
            for start in range(0, len(keys), BATCH):
                writer.add(keys[start : start + BATCH], data[:, :, :, :, start : start + BATCH])

    def open(self, folder: Path) -> None:
        self.reader = ActivationReader([folder / "a"])

    def read(self, component: int, layer: int) -> Iterator[Tensor]:
        """The vectors [examples, width] of every position and pass, pass by pass as the probe stage reads them."""
        for position in POSITIONS:
            for run in PASSES:
                yield self.reader.read(COMPONENTS[component], position, *run, layers=range(layer, layer + 1))[0]


class PlainFile(pq.ParquetFile):
    schema = pq.ParquetFile.schema_arrow
    path = "a file without checks"


class Unchecked(Store):
    def write(self, folder: Path, data: Tensor) -> None:
        with patch("anchorscope.extract.store.SealedWriter", pq.ParquetWriter):
            super().write(folder, data)

    def open(self, folder: Path) -> None:
        with patch("anchorscope.extract.store.SealedFile", PlainFile):
            super().open(folder)


class Lists:
    dtype = torch.float16

    def write(self, folder: Path, data: Tensor) -> None:
        self.shape = data.shape
        vector = pa.list_(pa.float16(), data.shape[5])
        names = [
            column(component, position, *run, layer=layer)
            for component in COMPONENTS
            for layer in range(data.shape[1])
            for run in PASSES
            for position in POSITIONS
        ]
        schema = pa.schema([(name, vector) for name in names])
        batches = -(-GROUP_BYTES // data[:, :, :, :, :BATCH].nbytes)  # of a row group, as the store counts them
        with pq.ParquetWriter(
            folder / "b.parquet", schema, compression="none", use_dictionary=False, write_statistics=False
        ) as writer:
            for start in range(0, data.shape[4], batches * BATCH):
                group = data[:, :, :, :, start : start + batches * BATCH].flatten(0, 3).numpy()
                arrays = [pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), type=vector) for rows in group]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

    def open(self, folder: Path) -> None:
        self.file = pq.ParquetFile(folder / "b.parquet")

    def read(self, component: int, layer: int) -> Iterator[Tensor]:
        for position in POSITIONS:
            for run in PASSES:
                table = self.file.read(columns=[column(COMPONENTS[component], position, *run, layer=layer)])
                chunks = [chunk.flatten().to_numpy() for chunk in table.column(0).chunks]
                yield torch.from_numpy(np.concatenate(chunks)).unflatten(0, self.shape[4:])


class Npy:
    dtype = torch.float16

    def write(self, folder: Path, data: Tensor) -> None:
        for component, layers in zip(COMPONENTS, data, strict=True):
            for layer, vectors in enumerate(layers):
                np.save(folder / f"{component}-{layer:02d}.npy", vectors.numpy())

    def open(self, folder: Path) -> None:
        self.folder = folder

    def read(self, component: int, layer: int) -> Iterator[Tensor]:
        vectors = torch.from_numpy(np.load(self.folder / f"{COMPONENTS[component]}-{layer:02d}.npy"))
        yield from vectors.transpose(0, 1).flatten(0, 1)


LAYOUTS = {"store": Store(), "unchecked": Unchecked(), "lists": Lists(), "npy": Npy()}


def spent(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


def measure(name: str, layout: Store | Lists | Npy, data: Tensor, folder: Path, repeats: int) -> dict:
    data = data.to(layout.dtype)
    components, layers = data.shape[:2]
    places = [(component, layer) for component in range(components) for layer in range(layers)]

    def median(work, clock=time.perf_counter) -> float:
        return statistics.median(spent(work, clock) for _ in range(repeats))

    def read(some: list[tuple[int, int]]) -> None:
        for place in some:
            for _ in layout.read(*place):
                pass

    write = median(lambda: layout.write(folder, data))
    opened = median(lambda: layout.open(folder))
    one = median(lambda: read([(0, layers // 2)]))
    every = median(lambda: read(places))
    for component, layer in places:
        expected = data[component, layer].transpose(0, 1).flatten(0, 1)  # [positions x passes, examples, width]
        for found, vectors in zip(layout.read(component, layer), expected, strict=True):
            if not torch.equal(found.view(torch.int16), vectors.view(torch.int16)):
                raise AssertionError(f"{name} gave back something else at component {component}, layer {layer}")
    return {
        "layout": name,
        "file GB": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e9,
        "files": len(os.listdir(folder)),
        "write GB/s": data.nbytes / write / 1e9,
        "open ms": opened * 1e3,
        "one layer GB/s": data.nbytes / len(places) / one / 1e9,
        "all layers GB/s": data.nbytes / every / 1e9,
        "write s": write,
        "all layers s": every,
        "write processor s": median(lambda: layout.write(folder, data), time.process_time),
        "all layers processor s": median(lambda: read(places), time.process_time),
    }


if __name__ == "__main__":
    options = arguments(
        layouts={"nargs": "+", "choices": LAYOUTS, "default": list(LAYOUTS)},
        examples={"type": int, "default": 200},
        layers={"type": int, "default": 16, "help": "of Llama-3.2-1B, as the width"},
        width={"type": int, "default": 2048},
        repeats={"type": int, "default": 3, "help": "runs of each, of which the median counts"},
        folder={"type": Path, "help": "where the files are written; by default the system's temporary folder"},
    )
    shape = (len(COMPONENTS), options.layers, len(PASSES), len(POSITIONS), options.examples, options.width)
    data = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.bfloat16)
    results = []
    for name in options.layouts:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            results.append(measure(name, LAYOUTS[name], data=data, folder=Path(folder), repeats=options.repeats))
    about = {"data GB": data.nbytes / 1e9, "shape": list(shape), "page cache": "warm, nothing synced", **machine()}
    report(results, about, options.record)
