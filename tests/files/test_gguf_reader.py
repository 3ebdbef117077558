"""The fast reader of GGUF files against the one of the format's own library."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from anchorscope.files.gguf_reader import FastReader


def written(path: Path, byte_order: gguf.GGUFEndian) -> Path:
    """A file with a list of every kind, and two tensors."""
    writer = gguf.GGUFWriter(path, "llama", endianess=byte_order)
    writer.add_array("texts", ["", "Émile", "東京", "a" * 300])
    writer.add_array("numbers", [1, -2, 2**31 - 1])
    writer.add_array("fractions", [0.5, -1.25])
    writer.add_array("truths", [True, False])
    writer.add_array("lists", [[1, 2], [3, 4]])
    writer.add_key_value("bytes", b"\x01\xff", gguf.GGUFValueType.ARRAY, sub_type=gguf.GGUFValueType.UINT8)
    writer.add_string("general.license", "mit")
    writer.add_tensor("half", np.arange(6, dtype=np.float16).reshape(2, 3))
    writer.add_tensor("single", np.arange(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("byte_order", gguf.GGUFEndian)
def test_every_field_and_tensor_is_read_as_the_formats_own_library_reads_it(byte_order, tmp_path):
    file = written(tmp_path / "any.gguf", byte_order)
    fast, plain = FastReader(file), gguf.GGUFReader(file)
    assert list(fast.fields) == list(plain.fields)
    for name, field in fast.fields.items():
        assert (field.types, field.offset) == (plain.fields[name].types, plain.fields[name].offset), name
        assert field.contents() == plain.fields[name].contents(), name
    for mine, theirs in zip(fast.tensors, plain.tensors, strict=True):
        assert (mine.name, mine.data_offset, mine.data.tolist()) == (
            theirs.name,
            theirs.data_offset,
            theirs.data.tolist(),
        )


def test_a_list_that_its_file_does_not_hold_to_the_end_is_refused(tmp_path):
    file = written(tmp_path / "any.gguf", gguf.GGUFEndian.LITTLE)
    file.write_bytes(file.read_bytes()[:120])
    with pytest.raises(Exception, match=r"buffer|index"):
        FastReader(file)
