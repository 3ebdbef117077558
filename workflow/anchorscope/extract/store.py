"""Activations on disk: a folder of Parquet files, one for each component and position, with one row per example.

A column `resid/answer_last/first/clean/07` of `resid.answer_last.parquet` holds, for every example, the vector of
component `resid` at position `answer_last` under the prompt `first` with intervention `clean` in layer 7, as
`fixed_size_binary` in the model's own dtype. Reading a layer touches only that layer's bytes. Each file of a folder is
written by its own thread.

Every knockout that is run besides `exact_question` has files of its own, such as `resid.answer_last.subject.parquet`,
so that one can be added without computing the others again. Their examples may stand in another order. So has every
experiment that replaces tokens, such as `resid.answer_last.patching.parquet`.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from anchorscope.extract.axes import (
    EXACT,
    FULL_GRID,
    PASSES,
    REPLACING,
    Grid,
    Pass,
    is_knockout,
    knockouts_of,
    passes_of,
    window_of,
)
from anchorscope.files.atomic import atomic, explaining_full_disk
from anchorscope.files.faults import shortened
from anchorscope.files.sealed_parquet import SealedFile, SealedWriter

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
GROUP_BYTES = 64 * 2**20  # of a row group
GROUP_EXAMPLES = 16  # in a row group at least: each column of each group has an entry in the footer
READING_THREADS = 4  # threads, each of which puts a column together
KEYS = pa.schema(
    [
        *(("id", pa.string()), ("right", pa.bool_()), ("subject", pa.string()), ("popularity", pa.int64())),
        *(("question_form", pa.string()), ("answer_form", pa.string()), ("answer_in_question", pa.bool_())),
    ]
)
CUT = "cut"  # how many tokens the file's knockout cuts; 0 where the example has no such words
# What an experiment did to an example in each of its passes: whose tokens it put in the place of how many, and how many
# stayed because the donor had too few.
REPLACED = pa.schema(
    [("donor", pa.string()), ("donor_popularity", pa.int64()), ("replaced", pa.int32()), ("kept", pa.int32())]
)


def column(component: str, position: str, prompt: str, intervention: str, layer: int) -> str:
    return f"{component}/{position}/{prompt}/{intervention}/{layer:02d}"


def rows_of(knockout: str) -> pa.Schema:
    """The columns besides vectors in the files of a knockout or of an experiment."""
    if knockout not in REPLACING:
        return KEYS.append(pa.field(CUT, pa.int32()))
    done = [
        (f"{intervention}/{field.name}", field.type) for _, intervention in REPLACING[knockout] for field in REPLACED
    ]
    return pa.schema([*KEYS, *done])


def file_of(folder: Path | str, component: str, position: str, knockout: str = EXACT) -> Path:
    added = "" if knockout == EXACT else f".{knockout}"
    return Path(folder) / f"{component}.{position}{added}.parquet"


def grid_of(folder: Path | str) -> Grid:
    """The components and positions that a folder has files for."""
    there = [place for place in FULL_GRID.places() if file_of(folder, *place).exists()]
    if not there:
        like = file_of("", *FULL_GRID.places()[0])
        raise FileNotFoundError(f"{shortened(folder)} holds no activations: no file such as {like}.")
    return Grid(*(tuple(dict.fromkeys(names)) for names in zip(*there, strict=True)))


def knockouts_in(folder: Path | str, grid: Grid) -> list[str]:
    """The knockouts that a folder has files for, besides the one that is always there."""
    component, position = grid.places()[0]
    found = {path.name.split(".")[2] for path in Path(folder).glob(f"{component}.{position}.*.parquet")}
    return knockouts_of(found, {window for name in found if (window := window_of(name))})


def remove_added(folder: Path | str) -> None:
    """Remove the files of all knockouts but `exact_question`, which an earlier extraction may have left.

    Only what an extraction names so; whatever else lies in the folder is not ours.
    """
    for path in Path(folder).glob("*.*.*.parquet"):
        component, position, knockout = path.name.removesuffix(".parquet").split(".", 2)
        if (component, position) in FULL_GRID.places() and is_knockout(knockout):
            path.unlink()


def example_bytes(
    layers: int, width: int, dtype: torch.dtype, passes: int = len(PASSES), grid: Grid = FULL_GRID
) -> int:
    """How many bytes are kept of one example."""
    return len(grid) * passes * layers * width * dtype.itemsize


class ActivationWriter(AbstractContextManager["ActivationWriter"]):
    """Streams examples into the files of a folder. They are there, and whole, once it is closed."""

    def __init__(
        self,
        folder: Path | str,
        layers: int,
        width: int,
        dtype: torch.dtype,
        made_from: dict[str, str],
        grid: Grid = FULL_GRID,
        knockout: str = EXACT,
    ):
        described = {
            "dtype": str(dtype).removeprefix("torch."),
            "width": str(width),
            "layers": str(layers),
            **made_from,
        }
        self.folder, self.grid, self.knockout, self.passes = Path(folder), grid, knockout, passes_of(knockout)
        self.files = [
            _PlaceWriter(
                file_of(folder, *place, knockout=knockout),
                rows_of(knockout),
                [column(*place, *run, layer=layer) for layer in range(layers) for run in self.passes],
                passes=len(self.passes),
                size=width * dtype.itemsize,
                metadata=described,
            )
            for place in grid.places()
        ]
        self.pool = ThreadPoolExecutor(len(self.files))

    def add(self, keys: list[dict], block: Tensor) -> None:
        """Add examples; `block` is [components, layers, passes, positions, examples, width]."""
        raw = block.view(torch.uint8).numpy()
        parts = [raw[:, :, :, position][component] for component, position in np.ndindex(raw.shape[0], raw.shape[3])]
        list(self.pool.map(lambda file, part: file.add(keys, part), self.files, parts))

    def close(self) -> None:
        """Put the files in place, all of them or none, and remove those left by an extraction that kept more."""
        try:
            list(self.pool.map(_PlaceWriter.seal, self.files))
        except BaseException:
            self.abandon()
            raise
        list(self.pool.map(lambda file: file.whole.close(), self.files))
        self.pool.shutdown()
        for place in set(FULL_GRID.places()) - set(self.grid.places()):
            file_of(self.folder, *place, knockout=self.knockout).unlink(missing_ok=True)

    def abandon(self) -> None:
        """Leave nothing behind."""
        self.pool.shutdown()
        for file in self.files:
            file.abandon()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()


class _Abandoned(Exception):
    """A file is not to be kept."""


class _PlaceWriter:
    """Writes one file, one row group at a time, from one buffer that is filled again and again."""

    def __init__(
        self, target: Path, rows: pa.Schema, names: list[str], *, passes: int, size: int, metadata: dict[str, str]
    ):
        vector = pa.binary(size)
        self.target, self.rows = target, rows
        self.schema = pa.schema([*rows, *((name, vector) for name in names)]).with_metadata(metadata)
        self.whole = ExitStack()
        path = self.whole.enter_context(atomic(target))
        self.writer = SealedWriter(
            path, self.schema, compression="none", use_dictionary=list(rows.names), write_statistics=False
        )
        capacity = max(GROUP_EXAMPLES, GROUP_BYTES // (len(names) * size))
        self.buffer = np.empty((len(names) // passes, passes, capacity, size), np.uint8)
        self.keys: list[dict] = []

    def add(self, keys: list[dict], vectors: np.ndarray) -> None:
        """Add examples; `vectors` are [layers, passes, examples, bytes]."""
        capacity = self.buffer.shape[2]
        while keys:
            held = len(self.keys)
            taken = min(len(keys), capacity - held)
            self.buffer[:, :, held : held + taken] = vectors[:, :, :taken]
            self.keys.extend(keys[:taken])
            keys, vectors = keys[taken:], vectors[:, :, taken:]
            if len(self.keys) == capacity:
                self._flush()

    def _flush(self) -> None:
        if not self.keys:
            return
        table = pa.Table.from_pylist(self.keys, schema=self.rows)
        arrays = [
            pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(rows)])
            for rows in self.buffer.reshape(-1, *self.buffer.shape[2:])[:, : len(self.keys)]
        ]
        with explaining_full_disk(self.target):
            self.writer.write_table(pa.Table.from_arrays([*table.columns, *arrays], schema=self.schema))
        self.keys = []

    def seal(self) -> None:
        self._flush()
        with explaining_full_disk(self.target):
            self.writer.close()

    def abandon(self) -> None:
        with suppress(_Abandoned), self.whole:
            self.writer.abandon()
            raise _Abandoned


def check_states_finite(keys: list[dict], block: Tensor, grid: Grid, passes: Sequence[Pass] = PASSES) -> None:
    """Stop at the first NaN or infinity, in the order of computation, and say where it is."""
    bad = (~torch.isfinite(block)).any(dim=-1).nonzero().tolist()
    if not bad:
        return
    # A block's output is made after those of its parts.
    component, layer, run, position, example = min(
        bad, key=lambda place: (place[1], grid.components[place[0]] == "resid", place)
    )
    raise ValueError(
        f"Activation of example {keys[example]['id']} is not finite in layer {layer}, component "
        f"{grid.components[component]}, position {grid.positions[position]}, intervention {passes[run][1]}; "
        "set the model's dtype to bfloat16 or float32."
    )


def open_activations(files: Sequence[Path | str], grid: Grid, knockouts: Sequence[str]) -> "ActivationReader":
    """A reader of the shards' folders that these files are in."""
    return ActivationReader(list(dict.fromkeys(Path(file).parent for file in files)), grid, knockouts)


class ActivationReader:
    """Reads the vectors of several shards, one folder each, as one set in the order of the examples' ids."""

    def __init__(self, folders: Sequence[Path | str], grid: Grid | None = None, knockouts: Sequence[str] | None = None):
        self.grid = grid or grid_of(folders[0])
        self.knockouts = knockouts or knockouts_in(folders[0], self.grid)
        self.of = {knockout: _KnockoutFiles(folders, self.grid, knockout) for knockout in self.knockouts}
        self.keys = [{name: row[name] for name in KEYS.names} for row in self.of[EXACT].rows]
        files = [file for some in self.of.values() for file in some.all_files()]
        for file in files:
            if _shape(file) != _shape(files[0]):
                raise ValueError(
                    f"{file.path} holds layers, width and dtype {', '.join(_shape(file))}, but {files[0].path} "
                    f"{', '.join(_shape(files[0]))}; delete one of them, or set the model's dtype in the config."
                )
        for some in self.of.values():
            if [row["id"] for row in some.rows] != [key["id"] for key in self.keys]:
                raise ValueError(
                    f"{some.all_files()[0].path} and {files[0].path} hold different examples; delete one of them."
                )
        layers, width, dtype = _shape(files[0])
        self.layers, self.width, self.dtype = int(layers), int(width), DTYPES[dtype]

    def cuts(self, knockout: str) -> np.ndarray:
        """Whether a knockout and its control cut anything, boolean [examples]."""
        return np.array([row[CUT] != 0 for row in self.of[knockout].rows], bool)

    def replaced(self, experiment: str, intervention: str) -> list[dict]:
        """What an experiment did to each example in one of its passes."""
        rows = self.of[experiment].rows
        return [{name: row[f"{intervention}/{name}"] for name in REPLACED.names} for row in rows]

    def read(self, component: str, position: str, prompt: str, intervention: str, layers: range) -> Tensor:
        """Vectors [layers, examples, width] in the stored dtype."""
        run = (prompt, intervention)
        return self.read_passes(component, position, [run], layers=layers)[run]

    def read_passes(self, component: str, position: str, passes: Sequence[Pass], layers: range) -> dict[Pass, Tensor]:
        """Vectors of several passes at once, each [layers, examples, width]."""
        self._check_kept(component, position, passes)
        found: dict[Pass, Tensor] = {}
        for knockout, some in self.of.items():
            mine = [run for run in passes if run in passes_of(knockout)]
            names = [column(component, position, *run, layer=layer) for run in mine for layer in layers]
            if names:
                raw = torch.from_numpy(some.read((component, position), names)).view(self.dtype)
                found.update(zip(mine, raw.unflatten(0, (len(mine), len(layers))), strict=True))
        return found

    def _check_kept(self, component: str, position: str, passes: Sequence[Pass]) -> None:
        if (component, position) not in self.grid.places():
            kept = ", ".join(" at ".join(place) for place in self.grid.places())
            raise ValueError(f"{component} at {position} was not kept; these activations are of {kept}.")
        there = [run for knockout in self.knockouts for run in passes_of(knockout)]
        missing = [run for run in passes if run not in there]
        if missing:
            kept = ", ".join(dict.fromkeys(intervention for _, intervention in there))
            raise ValueError(
                f"{missing[0][1]} was not run under the {missing[0][0]} prompt; these activations are of {kept}."
            )


class _KnockoutFiles:
    """The files of one knockout, with the examples of all shards in the order of their ids."""

    def __init__(self, folders: Sequence[Path | str], grid: Grid, knockout: str):
        # Opened once: parsing a footer of thousands of columns takes longer than reading a layer.
        self.files = {
            place: [SealedFile(file_of(folder, *place, knockout=knockout)) for folder in folders]
            for place in grid.places()
        }
        names = rows_of(knockout).names
        rows = [row for file in self.files[grid.places()[0]] for row in file.read(names).to_pylist()]
        order = np.argsort([row["id"] for row in rows], kind="stable")
        self.rows = [rows[index] for index in order]
        self.places = np.argsort(order)  # of each stored example, in the order of ids

    def all_files(self) -> list[SealedFile]:
        return [file for some in self.files.values() for file in some]

    def read(self, place: tuple[str, str], names: list[str]) -> np.ndarray:
        """Columns [columns, examples, bytes]; one file after the other, so that little is held twice."""
        size = self.files[place][0].schema.field(names[0]).type.byte_width
        raw = np.empty((len(names), len(self.rows), size), np.uint8)
        start = 0
        with ThreadPoolExecutor(READING_THREADS) as pool:
            for file in self.files[place]:
                table = file.read(names)
                places = self.places[start : start + len(table)]
                list(pool.map(_put_in_place, raw, table.columns, [places] * len(names)))
                start += len(table)
        return raw


def _put_in_place(raw: np.ndarray, column: pa.ChunkedArray, places: np.ndarray) -> None:
    """The vectors of a column at their places in `raw` [examples, bytes]."""
    start = 0
    for chunk in column.chunks:
        raw[places[start : start + len(chunk)]] = vector_bytes(chunk)
        start += len(chunk)


def _shape(file: SealedFile) -> tuple[str, ...]:
    return tuple(file.schema.metadata[name].decode() for name in (b"layers", b"width", b"dtype"))


def vector_bytes(chunk: pa.FixedSizeBinaryArray) -> np.ndarray:
    """The vectors of a column chunk as bytes [examples, bytes], without a copy."""
    size = chunk.type.byte_width
    raw = np.frombuffer(chunk.buffers()[1], np.uint8, count=len(chunk) * size, offset=chunk.offset * size)
    return raw.reshape(-1, size)
