"""Activations on disk: Parquet, one row an example, one column a vector.

A column `resid/answer_last/first/clean/07` holds, for every example, the vector of component
`resid` at position `answer_last` under the prompt `first` with intervention `clean` in layer 7, as
`fixed_size_binary` in the model's own dtype. Reading a layer touches that layer's bytes only.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from anchorscope.measured import COMPONENTS, PASSES, POSITIONS
from anchorscope.parquet import SealedFile, SealedWriter

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
GROUP_BYTES = 64 * 2**20  # a row group holds so much
GROUP_EXAMPLES = 16  # and at least so many examples: each column of each group has its entry in the footer
KEYS = pa.schema(
    [("id", pa.string()), ("right", pa.bool_()), ("subject", pa.string()), ("popularity", pa.int64())],
)


def column(component: str, position: str, prompt: str, intervention: str, layer: int) -> str:
    return f"{component}/{position}/{prompt}/{intervention}/{layer:02d}"


def example_bytes(layers: int, width: int, dtype: torch.dtype, passes: int = len(PASSES)) -> int:
    """What is kept of one example."""
    return len(COMPONENTS) * len(POSITIONS) * passes * layers * width * dtype.itemsize


class ActivationWriter:
    """Streams examples into a Parquet file, a row group at a time, from one buffer that is filled again and again."""

    def __init__(self, path: Path, layers: int, width: int, dtype: torch.dtype, about: dict[str, str]):
        shape = (len(COMPONENTS), layers, len(PASSES), len(POSITIONS))
        names = [
            column(component, position, prompt, intervention, layer)
            for component in COMPONENTS
            for layer in range(layers)
            for prompt, intervention in PASSES
            for position in POSITIONS
        ]
        described = {"dtype": str(dtype).removeprefix("torch."), "width": str(width), "layers": str(layers)}
        vector = pa.binary(width * dtype.itemsize)
        self.schema = pa.schema([*KEYS, *((name, vector) for name in names)]).with_metadata({**described, **about})
        self.writer = SealedWriter(
            path, self.schema, compression="none", use_dictionary=list(KEYS.names), write_statistics=False
        )
        capacity = max(GROUP_EXAMPLES, GROUP_BYTES // (len(names) * vector.byte_width))
        with torch.inference_mode(False):  # which the thread that fills it is not in, even where the caller is
            self.buffer = torch.empty((*shape, capacity, width), dtype=dtype)
        self.keys: list[dict] = []

    def add(self, keys: list[dict], block: Tensor) -> None:
        """Add examples; `block` is [components, layers, passes, positions, examples, width]."""
        while keys:
            held = len(self.keys)
            taken = min(len(keys), self.buffer.shape[-2] - held)
            self.buffer[..., held : held + taken, :] = block[..., :taken, :]
            self.keys.extend(keys[:taken])
            keys, block = keys[taken:], block[..., taken:, :]
            if len(self.keys) == self.buffer.shape[-2]:
                self._flush()

    def _flush(self) -> None:
        if not self.keys:
            return
        raw = self.buffer.flatten(0, 3).view(torch.uint8).numpy()[:, : len(self.keys)]  # [columns, examples, bytes]
        table = pa.Table.from_pylist(self.keys, schema=KEYS)
        arrays = [
            pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(rows)])
            for rows in raw
        ]
        self.writer.write_table(pa.Table.from_arrays([*table.columns, *arrays], schema=self.schema))
        self.keys = []

    def close(self) -> None:
        self._flush()
        self.writer.close()

    def __enter__(self) -> "ActivationWriter":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self.writer.abandon()


def check_finite(keys: list[dict], block: Tensor) -> None:
    """Stop at the first NaN or infinity, in the order of computation, and say where it is."""
    bad = (~torch.isfinite(block)).any(dim=-1).nonzero().tolist()
    if not bad:
        return
    made_last = COMPONENTS.index("resid")
    component, layer, run, position, example = min(bad, key=lambda place: (place[1], place[0] == made_last, place))
    raise ValueError(
        f"Activation of example {keys[example]['id']} is not finite in layer {layer}, component "
        f"{COMPONENTS[component]}, position {POSITIONS[position]}, intervention {PASSES[run][1]}; "
        "set the model's dtype to bfloat16 or float32."
    )


class ActivationReader:
    """Reads vectors of several shard files as one set, in the order of their ids."""

    def __init__(self, paths: list[Path | str]):
        # Opened once: a footer of thousands of columns takes longer to parse than a layer to read.
        self.files = [SealedFile(path) for path in paths]
        shapes = [
            tuple(file.schema.metadata[name].decode() for name in (b"layers", b"width", b"dtype"))
            for file in self.files
        ]
        for path, shape in zip(paths, shapes, strict=True):
            if shape != shapes[0]:
                raise ValueError(
                    f"{path} holds layers, width and dtype {', '.join(shape)}, but {paths[0]} {', '.join(shapes[0])}; "
                    "delete one of them, or set the model's dtype in the config."
                )
        self.layers, self.width, self.dtype = int(shapes[0][0]), int(shapes[0][1]), DTYPES[shapes[0][2]]
        rows = [row for file in self.files for row in file.read(KEYS.names).to_pylist()]
        self.order = np.argsort([row["id"] for row in rows], kind="stable")
        self.keys = [rows[index] for index in self.order]

    def read(self, component: str, position: str, prompt: str, intervention: str, layers: range) -> Tensor:
        """Vectors [layers, examples, width] in the stored dtype."""
        names = [column(component, position, prompt, intervention, layer) for layer in layers]
        tables = [file.read(names) for file in self.files]
        raw = np.empty((len(layers), len(self.keys), self.width * self.dtype.itemsize), np.uint8)
        for index, name in enumerate(names):
            chunks = [_bytes(chunk) for table in tables for chunk in table.column(name).chunks]
            raw[index] = np.concatenate(chunks)[self.order] if chunks else raw[index]
        return torch.from_numpy(raw).view(self.dtype)


def _bytes(chunk: pa.FixedSizeBinaryArray) -> np.ndarray:
    """The vectors of a column chunk as bytes [examples, bytes], without a copy."""
    size = chunk.type.byte_width
    return np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * size, chunk.offset * size).reshape(-1, size)
