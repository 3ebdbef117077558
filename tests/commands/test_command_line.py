"""The command `anchorscope`: what it takes, what it begins with, and what it says when something is missing."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from anchorscope.__main__ import COMMANDS, start
from anchorscope.commands.init import configs
from anchorscope.commands.workflow import snakemake_words
from anchorscope.config_checks import mistakes
from anchorscope.files.bundled import ROOT
from small_run import jobs

ANCHORSCOPE = [sys.executable, "-m", "anchorscope"]
SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text(encoding="utf-8"))


def test_help_names_every_command_and_imports_nothing_large():
    code = (
        "import sys; from anchorscope.__main__ import main; sys.argv[1:] = []; main();"
        "assert not {'torch', 'transformers', 'numpy', 'polars', 'pyarrow', 'snakemake'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.partition("commands:\n")[2].splitlines()[: len(COMMANDS)]] == list(
        COMMANDS
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_an_example_of_it(name, capsys):
    with pytest.raises(SystemExit) as ended:
        start(name, ["--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"example: anchorscope {name}" in said
    assert COMMANDS[name].what in said


def test_a_command_that_is_not_there_is_refused():
    done = subprocess.run([*ANCHORSCOPE, "rum"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "invalid choice: 'rum'" in done.stderr


@pytest.mark.parametrize("name", configs())
def test_every_config_to_begin_with_can_be_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    start("init", ["mine", "--from", name])
    assert "cd mine\n  anchorscope run\n" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path / "mine")
    config = Path("config.yaml").read_text(encoding="utf-8")
    assert mistakes(yaml.safe_load(config), SCHEMA) == []
    assert all(Path(schema).is_file() for schema in re.findall(r"\S+schema\.yaml", config))


def test_the_page_about_configs_lists_every_one_to_begin_with():
    page = (ROOT / "config/README.md").read_text(encoding="utf-8")
    table = page.partition("| name | what it runs |\n")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"\[`([^`]+)`\]\([./\w-]*\.yaml\)", table)) == sorted(configs())


def test_a_config_that_is_there_is_kept(tmp_path):
    (tmp_path / "config.yaml").write_text("mine")
    with pytest.raises(SystemExit, match=r"anchorscope init: .*config\.yaml is there already; name another folder"):
        start("init", [str(tmp_path)])
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_the_profiles_for_a_cluster_are_copied_and_found_by_the_command_that_is_said(tmp_path, capsys):
    start("init", [str(tmp_path / "mine"), "--cluster"])
    command = capsys.readouterr().out.splitlines()[-1].strip()
    (profile,) = shlex.split(command)[-1:]
    assert (tmp_path / "mine" / profile / "config.yaml").is_file()
    assert (tmp_path / "mine" / profile / "../cluster.yaml").is_file()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match=r"cannot be written: Not a directory\.$"):
        start("init", [str(tmp_path / "file/mine")])


def test_snakemake_is_given_the_snakefile_that_comes_with_the_library_unless_one_is_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"There is no config\.yaml in .*; `anchorscope init \.` writes one there"):
        snakemake_words([])
    ours = ["--snakefile", str(ROOT / "Snakefile")]
    assert snakemake_words(["detect", "--configfile", "my.yaml"])[-2:] == ours
    Path("config.yaml").touch()
    assert snakemake_words([]) == ["--cores", "all", *ours]
    assert snakemake_words(["-n", "--cores", "2"]) == ["-n", "--cores", "2", *ours]
    one_key = ["--config", "questions=10"]  # no short form of --configfile
    assert snakemake_words(one_key) == [*one_key, "--cores", "all", *ours]
    assert snakemake_words(["--workflow-profile", "slurm"]) == ["--workflow-profile", "slurm", *ours]
    Path("Snakefile").touch()
    assert snakemake_words(["detect"]) == ["detect", "--cores", "all"]


def test_a_run_is_planned_in_a_folder_that_has_a_config_alone(tmp_path):
    subprocess.run([*ANCHORSCOPE, "init", ".", "--from", "tiny"], cwd=tmp_path, check=True)
    command = [*ANCHORSCOPE, "run", "--", "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.startswith(
        f"snakemake --dry-run --cores all --snakefile {shlex.quote(str(ROOT / 'Snakefile'))}\n"
    )
    assert jobs(done)["extract"] == 2


@pytest.mark.parametrize(("gone", "advice"), [(0, "name a model's manifest, such as "), (1, "name a file of results/")])
def test_a_file_to_extract_from_that_is_not_there_is_one_sentence(gone, advice, tmp_path):
    words = [str(tmp_path / "gone") if number == gone else __file__ for number in range(2)]
    with pytest.raises(SystemExit, match=rf"^anchorscope extract: .*gone does not exist; {advice}"):
        start("extract", [*words, str(tmp_path / "out")])
