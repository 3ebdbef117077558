"""Parquet files are read as they were written, or refused by name."""

import os
import random
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from anchorscope.answer.answers import ANSWERS_SCHEMA
from anchorscope.commands.damage import find_damage
from anchorscope.extract import store
from anchorscope.extract.axes import HEADLINE
from anchorscope.extract.store import ActivationReader, ActivationWriter, file_of
from anchorscope.files import sealed_parquet as parquet
from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.identity import sha256_of_file
from anchorscope.files.sealed_parquet import (
    DamagedFileError,
    SealedFile,
    SealedWriter,
    check,
    made_from,
    read_metadata,
    read_table,
    sealed,
    write_table,
)
from anchorscope.questions.local_rows import copy_rows

ABOUT = {"anchorscope": '{"stage":"test"}'}
FLIPS = 600  # of each file


def answer_rows(count: int) -> list[dict]:
    draw = random.Random(0)
    return [
        {
            "id": f"{number:012x}",
            "question": f"who was number {draw.random()}",
            "gold": [str(draw.random()) for _ in range(draw.randrange(3))],
            "subject": None if number % 3 else "somebody",
            "popularity": None,
            "spans": [{"start": 0, "end": draw.randrange(9)}],
            "generated_ids": [draw.randrange(50000) for _ in range(draw.randrange(5))],
            "right": (True, False, None)[number % 3],
            "refused": number % 3 == 2,
        }
        for number in range(count)
    ]


def write_answers(path: Path) -> None:
    write_table(path, pa.Table.from_pylist(answer_rows(60), schema=ANSWERS_SCHEMA), ABOUT)


def write_activations(path: Path) -> None:
    keys = [{"id": f"{i:02d}", "right": i % 2 == 0, "subject": None, "popularity": i} for i in range(40)]
    vectors = torch.randn(3, 1, 5, 3, len(keys), 4, generator=torch.Generator().manual_seed(0))
    with ActivationWriter(path.with_suffix(""), 1, 4, torch.float32, ABOUT, HEADLINE) as writer:
        writer.add(keys, vectors[:1, :, :, :1])
    file_of(path.with_suffix(""), *HEADLINE.places()[0]).rename(path)


def write_estimates(path: Path) -> None:
    curves = pl.Series([[1.0, 2.0], None, [3.0, 4.0]] * 20, dtype=pl.Array(pl.Float64, 2))
    columns = {"rule": ["flip", "fixed", None] * 20, "folds": [[1], [], None] * 20, "none": [None] * 60}
    write_frame(path, pl.DataFrame({**columns, "delta_p": curves}), ABOUT)


WRITERS = {"answers": write_answers, "activations": write_activations, "estimates": write_estimates}


@pytest.fixture(params=WRITERS)
def file(request, tmp_path, monkeypatch) -> Path:
    """A small file of each kind; the activations in three row groups."""
    monkeypatch.setattr(store, "GROUP_BYTES", 1)
    path = tmp_path / f"{request.param}.parquet"
    WRITERS[request.param](path)
    return path


def refuses(path: Path) -> bool:
    """Whether a file is called damaged, by reading its table and by looking at all of it."""
    for look in (check, read_table):
        try:
            look(path)
        except DamagedFileError:
            continue
        return False
    return True


def test_some_columns_of_a_table_without_rows_can_be_read(tmp_path):
    write_table(tmp_path / "none.parquet", ANSWERS_SCHEMA.empty_table(), ABOUT)
    assert read_table(tmp_path / "none.parquet", ["id", "spans"]).to_pydict() == {"id": [], "spans": []}


def test_no_wrong_bit_goes_unnoticed(file):
    """Half of the bits in the pages and their headers, half in the footer."""
    whole, draw = file.read_bytes(), random.Random(0)
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    assert not refuses(file)
    unnoticed = []
    for place in [draw.randrange(*part) for part in ((0, footer), (footer, len(whole))) for _ in range(FLIPS // 2)]:
        wrong = bytearray(whole)
        wrong[place] ^= 1 << draw.randrange(8)
        file.write_bytes(wrong)
        if not refuses(file):
            unnoticed.append(place)
    assert not unnoticed


def test_no_missing_or_emptied_part_goes_unnoticed(file):
    whole, draw = file.read_bytes(), random.Random(0)
    places = [0, 1, 4, 8, *(draw.randrange(len(whole)) for _ in range(100)), len(whole) - 1]
    shortened = [whole[:place] for place in places] + [whole[place + 1 :] for place in places]
    with_holes = [whole[:place] + whole[place + 7 :] for place in places]
    zeroed = [whole[:place] + bytes(len(whole[place : place + 512])) + whole[place + 512 :] for place in places]
    for number, content in enumerate([*shortened, *with_holes, *zeroed, whole + b"\n"]):
        file.write_bytes(content)
        assert refuses(file), number


def test_what_is_wrong_is_said_with_the_command_that_makes_the_file_again(tmp_path):
    path = tmp_path / "a.parquet"
    write_answers(path)
    whole = path.read_bytes()
    again = f"make it again, with the options of your run: snakemake --cores all --forcerun {path}"
    for content, why in (
        (b"", "it is empty"),
        (whole[:-100], "its beginning or end is missing"),
        (whole[:100] + b"\0" + whole[101:], r"its bytes \d+ to \d+ do not match their checksum"),
        (whole[:-100] + b"\0" + whole[-99:], "its footer does not match its seal"),
    ):
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match=rf"{path} is damaged \({why}\); {again}"):
            read_table(path)


def test_a_file_without_a_seal_is_refused(tmp_path):
    pl.DataFrame({"id": ["a"]}).write_parquet(tmp_path / "polars.parquet")
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "pyarrow.parquet")
    SealedWriter(tmp_path / "abandoned.parquet", ANSWERS_SCHEMA).abandon()
    for name in ("polars", "pyarrow", "abandoned"):
        with pytest.raises(DamagedFileError, match=r"parquet is damaged \(it has no seal: it was written before"):
            read_table(tmp_path / f"{name}.parquet")


def test_a_block_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="schema"), sealed(tmp_path / "a.parquet", ANSWERS_SCHEMA, ABOUT) as writer:
        writer.write_table(pa.table({"other": [1]}))
    assert not list(tmp_path.iterdir())


def test_a_layer_is_read_although_another_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "BLOCK", 64)
    write_activations(tmp_path / "any.parquet")
    path = file_of(tmp_path / "any", *HEADLINE.places()[0])
    (tmp_path / "any.parquet").rename(path)
    names = SealedFile(path).schema.names
    bad = names.index("resid/answer_last/first/clean/00")
    place = read_metadata(path).row_group(0).column(bad).data_page_offset
    whole = path.read_bytes()
    path.write_bytes(whole[: place + 100] + bytes([whole[place + 100] ^ 1]) + whole[place + 101 :])
    reader = ActivationReader([path.parent])
    assert reader.read("resid", "answer_last", "second", "clean", range(1)).isfinite().all()
    with pytest.raises(DamagedFileError, match=r"resid\.answer_last\.parquet is damaged \(its bytes"):
        reader.read("resid", "answer_last", "first", "clean", range(1))


def test_plain_readers_see_the_same_rows_and_what_made_them(file):
    table = read_table(file)
    assert pq.read_table(file).equals(table)
    assert pl.read_parquet(file).equals(pl.from_arrow(table))
    assert pq.read_metadata(file).metadata[b"anchorscope"].decode() == ABOUT["anchorscope"]
    assert made_from(file) == {"stage": "test"}


def test_a_frame_comes_back_as_it_was(tmp_path):
    frame = pl.DataFrame(
        {"text": ["a", None], "lists": [[["x"], []], None], "null": [None, None], "number": [1, 2]},
        schema_overrides={"number": pl.Int16},
    )
    for some in (frame, frame.clear(), pl.DataFrame(schema={"id": pl.String})):
        write_frame(tmp_path / "a.parquet", some, ABOUT)
        found = read_frame(tmp_path / "a.parquet")
        assert found.equals(some)
        assert found.schema == some.schema == pl.read_parquet(tmp_path / "a.parquet").schema


def test_the_same_content_gives_the_same_bytes(file, tmp_path):
    (tmp_path / "again").mkdir()
    again = tmp_path / "again" / file.name
    WRITERS[file.stem](again)
    assert again.read_bytes() == file.read_bytes()


def test_upstreams_types_and_rows_survive_the_copy(tmp_path):
    table = pa.table(
        {
            "large": pa.array(["a", None, "c"], pa.large_string()),
            "nested": pa.array([[[1], []], None, [[2, 3]]], pa.list_(pa.list_(pa.int32()))),
            "null": pa.nulls(3),
            "struct": pa.array([{"value": "x", "aliases": ["y"]}, None, {"value": None, "aliases": []}]),
            "kind": pa.array(["p", "q", "p"]).dictionary_encode(),
            "time": pa.array([1, 2, None], pa.timestamp("us", "UTC")),
        },
        metadata={"theirs": "kept"},
    )
    theirs, ours = (tmp_path / f"{name}.parquet" for name in ("theirs", "ours"))
    pq.write_table(table, theirs, row_group_size=2)
    copy_rows(theirs, ours, ABOUT, sha256_of_file(theirs))
    copy_rows(ours, tmp_path / "copied.parquet", ABOUT, sha256_of_file(ours))
    for name in ("ours", "copied"):
        found = read_table(tmp_path / f"{name}.parquet")
        assert found.schema.equals(table.schema)
        assert found.equals(table)
        assert found.schema.metadata[b"theirs"] == b"kept"


def test_damage_anywhere_in_a_folder_is_found(tmp_path):
    for name in ("raw/one", "delta/tiny/one", "summary"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_estimates(tmp_path / f"{name}.parquet")
    assert set(find_damage(tmp_path).values()) == {None}
    os.truncate(tmp_path / "delta/tiny/one.parquet", 0)
    damaged = {path.name: why for path, why in find_damage(tmp_path).items() if why}
    assert damaged == {"one.parquet": "it is empty"}


def test_damage_is_found_behind_a_link_and_a_folder_without_files_is_named(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/0000.parquet").write_bytes(b"junk")
    command = [sys.executable, "-m", "anchorscope", "damage", "results"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "There is no Parquet file in results.\n")
    (tmp_path / "results/activations").symlink_to(tmp_path / "disk")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "results/activations/0000.parquet is damaged" in done.stdout


def test_a_file_that_its_disk_does_not_give_back_is_damaged(tmp_path):
    (tmp_path / "a.parquet").mkdir()  # reading a folder is an error of the system, too
    with pytest.raises(DamagedFileError, match=r"a\.parquet is damaged \(it cannot be read: "):
        check(tmp_path / "a.parquet")


def test_extraction_needs_no_polars():
    code = "import sys; sys.modules['polars'] = None; import anchorscope.extract.job, anchorscope.commands.damage"
    subprocess.run([sys.executable, "-c", code], check=True)
