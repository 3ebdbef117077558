"""A config file that Snakemake could not read, or would never finish reading, is refused before it tries."""

import os
import subprocess

import pytest

from anchorscope.config_files import file_mistakes, find_room_for_cache
from small_run import SNAKEMAKE, copy_project
from small_things import ROOT

DEFAULT = (ROOT / "config.yaml").read_text()
BOMB = "a: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
MERGED = "a: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9))
ALIASES = "has aliases (*) that stand for too much, or for a part they stand in; write them out."


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (DEFAULT.encode("utf-16"), "is not UTF-8, as its line 1 shows; save it in that encoding."),
        (b"seed: 0\nstyle: d\xe9j\xe0\n", "is not UTF-8, as its line 2 shows; save it in that encoding."),
        (BOMB.encode(), ALIASES),
        (MERGED.encode(), ALIASES),
        (
            b"models: &a {x: *a}",
            ALIASES,
        ),
        (b"#" * 500_001, "has 500,001 bytes; at most 500,000 are read."),
        (b"[" * 5000, "cannot be read as YAML: maximum recursion depth exceeded"),
        (b"a:\n\tb: 1\n", "cannot be read as YAML: line 2, found character '\\t'"),
        (b"seed: 2024-13-45\n", "cannot be read as YAML: month must be in 1..12."),
        (b"seed: !!python/name:os.system\n", "cannot be read as YAML: line 1, could not determine a constructor"),
        (b"title: \x00\n", "cannot be read as YAML: unacceptable character #x0000"),
        (b"", "holds no keys; begin with a copy of config.yaml."),
        (b"- 1\n", "holds no keys; begin with a copy of config.yaml."),
    ],
    ids="UTF-16,Latin-1,bomb,merged bomb,recursive,huge,deep,tab,date,object,NUL,empty,list".split(","),
)
def test_a_file_that_cannot_be_read_is_one_sentence(content, said, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    (sentence,) = file_mistakes(file)
    assert sentence.startswith(f"{file} {said}")
    assert "\n" not in sentence


def test_aliases_and_a_byte_order_mark_are_fine(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + b"a: &a [1, 2]\nb: [*a, *a]\nc: &c {x: *a}\nd: {<<: *c, y: 1}\n")
    assert file_mistakes(file) == []


def test_a_key_that_stands_twice_is_named_with_its_lines(tmp_path):
    file = tmp_path / "twice.yaml"
    file.write_text("models:\n  one: {path: a}\n  two: {path: b}\n  one: {path: c}\nfigures: [{x: 1, x: 2}]\nseed: 0\n")
    assert sorted(file_mistakes(file)) == [
        f"{file} has the key 'one' twice, in lines 2 and 4; keep one.",
        f"{file} has the key 'x' twice, in lines 5 and 5; keep one.",
    ]
    for shipped in ("config.yaml", "config/paper.yaml"):
        assert file_mistakes(ROOT / shipped) == []


OTHER_FAULTS = [("twice", True), ("fifo", False), ("UTF-16", True), ("UTF-16", False)]


@pytest.mark.parametrize(
    ("fault", "given"),
    [
        *(("twice", False), ("fifo", True), ("gone", True)),
        *(pytest.param(fault, given, marks=pytest.mark.slow) for fault, given in OTHER_FAULTS),
    ],
    ids=lambda value: {True: "on the command line", False: "the default"}.get(value, value),
)
def test_snakemake_ends_with_the_sentence_and_no_traceback(fault, given, tmp_path):
    folder = copy_project(tmp_path)
    file = folder / ("own.yaml" if given else "config.yaml")
    file.unlink(missing_ok=True)
    if fault == "fifo":
        os.mkfifo(file)  # which Snakemake would wait for
    elif fault != "gone":
        text = DEFAULT.replace("seed: 0", "seed: 1\nseed: 0") if fault == "twice" else DEFAULT
        file.write_text(text, encoding="utf-16" if fault == "UTF-16" else "utf-8")
    command = [*SNAKEMAKE, "--dry-run", "--cores", "1", *(["--configfile", file.name] if given else [])]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    said = (done.stdout + done.stderr).strip().splitlines()
    assert said[-2:] == ["The config cannot be run:", f"  {file_mistakes(file)[0]}".replace(f"{folder}/", "", 1)]
    assert fault != "gone" or f"it was looked for in {folder}." in said[-1]
    assert not any("Traceback" in line for line in said)


@pytest.mark.parametrize("writable", [True, False])
def test_snakemakes_cache_stays_in_the_home_unless_that_cannot_be_written(writable, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path) if writable else "/dev/null")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.chdir(tmp_path)
    find_room_for_cache()
    assert os.environ["XDG_CACHE_HOME"] == ("" if writable else str(tmp_path / ".snakemake/cache"))
