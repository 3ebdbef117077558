"""The real hub client against a small hub on this machine: clean downloads, and all that goes wrong with them."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
import yaml

from anchorscope.files.frames import read_frame
from anchorscope.questions.normalize import normalize
from hub_server import Fault, Hub, Repository, environment, serve
from small_run import SNAKEMAKE, copy_project, save_model, write_questions
from small_things import ROOT

REVISION = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_the-secret-that-nobody-may-see"
MIB = 2**20
# The client's own settings are read when it is imported, so each download is a process of its own.
DOWNLOAD = """
import sys
from anchorscope.files import hub
from anchorscope.files.logs import configure_logging
configure_logging(sys.argv[3])
sys.excepthook = sys.__excepthook__
hub.SECONDS_BEFORE_RETRIES = (0, 0)
print(hub.download("model", sys.argv[1], sys.argv[2], ["*.json", "*.safetensors"], ["consolidated*"]))
"""
FETCH_MODEL = """
import sys
from pathlib import Path
from anchorscope.models.fetch import fetch_model
source = {"hub": sys.argv[1], "revision": sys.argv[2]}
fetch_model("mine", source, folder=Path(sys.argv[3]), manifest=Path(sys.argv[3] + ".json"))
"""
ROWS = """
import sys
from pathlib import Path
from anchorscope.questions.hub_rows import write_rows
print(write_rows(sys.argv[1], sys.argv[2], sys.argv[3] or None, sys.argv[4], Path(sys.argv[5]), {}))
"""


@pytest.fixture
def hub():
    with serve() as running:
        yield running


@pytest.fixture
def model(hub) -> dict[str, bytes]:
    files = {
        "config.json": b'{"model_type": "llama"}',
        "model.safetensors": os.urandom(3 * MIB),
        "consolidated.safetensors": b"the same weights again",
        "pytorch_model.bin": b"a pickle",
    }
    hub.repositories["owner/model"] = Repository(REVISION, files)
    return files


def start(hub: Hub, home: Path, code: str, *arguments: str, **settings: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(hub.url, home, PYTHONPATH=str(ROOT / "workflow"), **settings),
    )


def download(hub: Hub, home: Path, repo: str = "owner/model", revision: str = REVISION, **settings: str) -> Path:
    home.mkdir(exist_ok=True)
    process = start(hub, home, DOWNLOAD, repo, revision, str(home / "log"), **settings)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return Path(output.strip())


def failure(hub: Hub, home: Path, repo: str = "owner/model", revision: str = REVISION, **settings: str) -> str:
    """The last line of a download that fails."""
    home.mkdir(exist_ok=True)
    process = start(hub, home, DOWNLOAD, repo, revision, str(home / "log"), **settings)
    output, errors = process.communicate()
    assert process.returncode == 1, output
    last = errors.strip().splitlines()[-1]
    assert last.startswith("anchorscope.files.hub.HubError: ")
    return last.removeprefix("anchorscope.files.hub.HubError: ")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def wanted(model: dict[str, bytes]) -> dict[str, bytes]:
    return {name: model[name] for name in ("config.json", "model.safetensors")}


def test_a_clean_download_has_the_wanted_files_and_no_others(hub, model, tmp_path):
    assert contents(download(hub, tmp_path)) == wanted(model)
    assert not hub.asked("consolidated|pytorch_model")


def test_nothing_but_the_config_of_a_model_without_attention_is_downloaded(hub, model, tmp_path):
    model["config.json"] = b'{"model_type": "mamba"}'
    process = start(hub, tmp_path, FETCH_MODEL, "owner/model", REVISION, str(tmp_path / "fetched"))
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "mine is a mamba model, which has no attention that could be cut" in errors.strip().splitlines()[-1]
    assert hub.asked(r"GET .*resolve.*config\.json")
    assert not hub.asked(r"resolve.*(?<!config\.json)$")
    assert not (tmp_path / "fetched").exists()


@pytest.mark.slow
def test_nothing_is_downloaded_twice(hub, model, tmp_path):
    first = download(hub, tmp_path)
    hub.requests.clear()
    assert download(hub, tmp_path) == first
    assert not hub.asked("resolve|tree")


def test_a_gated_model_without_a_token_says_where_to_accept_its_licence_and_how_to_log_in(hub, model, tmp_path):
    hub.repositories["owner/model"].token = TOKEN
    said = failure(hub, tmp_path)
    assert "owner/model is gated (the hub answered 401)" in said
    assert f"accept its licence at {hub.url}/owner/model, log in with `hf auth login` or set HF_TOKEN" in said


@pytest.mark.slow
def test_a_token_without_access_gets_the_same_advice_and_is_not_shown(hub, model, tmp_path):
    hub.repositories["owner/model"].token = TOKEN
    log = str(tmp_path / "log")
    process = start(hub, tmp_path, DOWNLOAD, "owner/model", REVISION, log, HF_TOKEN="hf_of-somebody-else")
    output, errors = process.communicate()
    assert "is gated (the hub answered 403): accept its licence" in errors.strip().splitlines()[-1]
    assert "hf_of-somebody-else" not in output + errors


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True], ids=["in the environment", "from the hub's own login"])
def test_a_token_with_access_is_let_in(hub, model, tmp_path, stored):
    hub.repositories["owner/model"].token = TOKEN
    if stored:
        (tmp_path / "token").write_text(TOKEN)
    assert contents(download(hub, tmp_path, **({} if stored else {"HF_TOKEN": TOKEN}))) == wanted(model)


@pytest.mark.slow
def test_a_missing_revision_and_a_missing_repository_are_told_apart(hub, model, tmp_path):
    other = REVISION[::-1]
    assert failure(hub, tmp_path, revision=other) == (
        f"owner/model has no revision {other}: set `revision` in the config to a commit listed at "
        f"{hub.url}/owner/model/commits."
    )
    assert failure(hub, tmp_path, repo="owner/nothing").startswith(
        "The hub shows no model owner/nothing to this account"
    )


@pytest.mark.parametrize(
    "fault",
    [
        Fault("tree", 2, 429, {"Retry-After": "1"}),
        pytest.param(Fault("tree", 2, 503), marks=pytest.mark.slow),
        pytest.param(Fault("HEAD .*safetensors", 1, 500), marks=pytest.mark.slow),
        pytest.param(Fault("GET .*safetensors", 1, 429, {"Retry-After": "1"}), marks=pytest.mark.slow),
        pytest.param(Fault("GET .*safetensors", 2, 503), marks=pytest.mark.slow),
    ],
    ids=lambda fault: f"{fault.status} on {fault.pattern}",
)
def test_rate_limits_and_server_errors_pass_on_retry(hub, model, tmp_path, fault):
    hub.faults.append(fault)
    assert contents(download(hub, tmp_path)) == wanted(model)
    assert fault.times == 0, "the fault was met"


@pytest.mark.slow
def test_a_server_error_that_does_not_pass_ends_in_a_sentence(hub, model, tmp_path):
    hub.faults.append(Fault("GET .*safetensors", 99, 502))
    assert failure(hub, tmp_path) == (
        "The hub kept answering 502 for owner/model: run again later; complete files are kept."
    )


def test_a_connection_cut_in_mid_file_is_resumed_where_it_broke(hub, model, tmp_path):
    model["model.safetensors"] = os.urandom(25 * MIB)  # the client keeps what it got in pieces of 10 MB
    hub.faults.append(Fault("GET .*model.safetensors", 1, cut_after=15 * MIB))
    assert contents(download(hub, tmp_path)) == wanted(model)
    (resumed,) = hub.asked(r"GET .*model.safetensors bytes=\d+-")
    assert int(resumed.rsplit("=")[1].rstrip("-")) >= 10_000_000


@pytest.mark.slow
def test_a_download_killed_in_mid_file_leaves_nothing_that_passes_for_whole(hub, model, tmp_path):
    hub.faults.append(Fault("GET .*model.safetensors", 1, cut_after=2 * MIB, hold=True))
    process = start(hub, tmp_path, DOWNLOAD, "owner/model", REVISION, str(tmp_path / "log"))
    while process.poll() is None and not hub.asked("GET .*model.safetensors"):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not list(tmp_path.rglob("model.safetensors"))
    assert "is not complete in the cache" in failure(hub, tmp_path, HF_HUB_OFFLINE="1")
    assert contents(download(hub, tmp_path)) == wanted(model)


@pytest.mark.parametrize("file", ["model.safetensors", pytest.param("config.json", marks=pytest.mark.slow)])
def test_a_file_with_other_bytes_than_its_hash_is_refused_and_fetched_anew(hub, model, tmp_path, file):
    hub.faults.append(Fault(f"GET .*{file}", 1, flip=True))
    assert failure(hub, tmp_path) == (
        f"{file} of owner/model does not match the hash that the hub gives for it and was removed; "
        "run again to download it again."
    )
    assert not list(tmp_path.rglob(file))
    assert contents(download(hub, tmp_path)) == wanted(model)


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
def test_a_file_in_the_store_that_repositories_share_is_verified_too(hub, model, tmp_path, damaged):
    """There the client names a file by another hash, and leads to it by two links."""
    folder = download(hub, tmp_path)
    blob = (folder / "model.safetensors").resolve()
    shared = tmp_path / "hub/blobs/ab" / ("ab" * 32)
    shared.parent.mkdir(parents=True)
    blob.rename(shared)
    blob.symlink_to(shared)
    if damaged:
        shared.write_bytes(shared.read_bytes()[:-1] + b"x")
        assert "model.safetensors of owner/model does not match the hash" in failure(hub, tmp_path)
    assert contents(download(hub, tmp_path)) == wanted(model)


@pytest.mark.slow
def test_a_signed_address_reaches_no_log_and_no_message(hub, model, tmp_path):
    """Large files are served from elsewhere, at an address that is a key to them."""
    signature = "X-Amz-Signature=nobody-may-see-this"
    address = f"{hub.url.replace('127.0.0.1', 'localhost')}/elsewhere?{signature}"
    elsewhere = {"Location": address, "ETag": '"e"', "X-Repo-Commit": REVISION}
    elsewhere |= {"X-Linked-Etag": f'"{"0" * 64}"', "X-Linked-Size": "9"}
    hub.faults += [Fault("(HEAD|GET) .*safetensors", 99, 302, elsewhere), Fault("GET /elsewhere", 99, 500)]
    process = start(hub, tmp_path, DOWNLOAD, "owner/model", REVISION, str(tmp_path / "log"))
    said = "".join(process.communicate())
    assert process.returncode == 1
    assert hub.asked("GET /elsewhere")
    assert signature not in said + (tmp_path / "log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_proxys_page_in_place_of_the_hubs_answer_ends_in_a_sentence(hub, model, tmp_path):
    hub.faults.append(Fault("tree", 99, 200))
    assert "The hub cannot be reached from here" in failure(hub, tmp_path)


@pytest.mark.slow
def test_a_full_disk_is_named_with_what_to_do(hub, model, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], capture_output=True).returncode:
        pytest.skip("a small disk can be mounted by root only")
    try:
        assert failure(hub, small).endswith(
            f"cannot be written to {small}/hub (No space left on device): make room or get access there, or point "
            "HF_HOME elsewhere, and run again."
        )
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.slow
def test_a_warm_cache_needs_no_network_and_a_cold_one_says_where_to_fetch(hub, model, tmp_path):
    warm = download(hub, tmp_path / "warm")
    hub.url = "http://127.0.0.1:9"  # nobody listens there
    assert download(hub, tmp_path / "warm") == warm
    assert download(hub, tmp_path / "warm", HF_HUB_OFFLINE="1") == warm
    said = failure(hub, tmp_path / "cold", HF_HUB_OFFLINE="1")
    assert said == failure(hub, tmp_path / "cold")
    assert (
        f"owner/model at {REVISION} is not complete in the cache: run `snakemake --cores all fetch` where there is a "
        "network" in said
    )


CARD = """---
configs:
- config_name: small
  data_files:
  - {split: train, path: small/train-*}
  - {split: validation, path: small/validation-*}
- config_name: other
  data_files:
  - {split: validation, path: other/validation-*}
---
# A set of questions
"""


def parquet(rows: list[dict]) -> bytes:
    file = io.BytesIO()
    pl.DataFrame(rows).write_parquet(file)
    return file.getvalue()


@pytest.fixture
def sets(hub) -> None:
    """Datasets as the four publish theirs: a bare table of tab-separated values, and Parquet with a card."""
    columns = ["id", "subj", "prop", "s_pop", "question", "possible_answers"]
    quoted = '"[""Gold Frapp"", ""Alison \\u00c9""]"'
    lines = [
        ["1", "None", "genre", "12", "What genre is None?", '"[""pop""]"'],
        ["2", "", "genre", "3", "What genre is it all?", '"[""rock""]"'],
        ["3", "Utopia", "performer", "44", "Who is the performer of Utopia?", quoted],
    ]
    table = "\n".join("\t".join(line) for line in [columns, *lines]) + "\n"
    hub.repositories["datasets/owner/table"] = Repository(
        REVISION, {"README.md": b"# Table", "test.tsv": table.encode()}
    )
    answers = [{"question": "who wrote emma", "answer": ["Jane Austen"]}, {"question": "who wrote it", "answer": ["X"]}]
    files = {
        "README.md": CARD.encode(),
        "small/train-00000-of-00001.parquet": parquet(answers * 9),
        "small/validation-00000-of-00002.parquet": parquet(answers[:1]),
        "small/validation-00001-of-00002.parquet": parquet(answers[1:]),
        "other/validation-00000-of-00001.parquet": parquet(answers * 5),
    }
    plain = {"data/test-00000-of-00001.parquet": parquet(answers), "latest.parquet": parquet(answers * 7)}
    hub.repositories["datasets/owner/plain"] = Repository(REVISION, plain)
    hub.repositories["datasets/owner/set"] = Repository(REVISION, files)


def rows(hub: Hub, home: Path, repo: str, subset: str, split: str, **settings: str) -> pl.DataFrame | str:
    """The rows of a split, or the last line where there are none."""
    target = home / "rows.parquet"
    process = start(hub, home / "home", ROWS, repo, REVISION, subset, split, str(target), **settings)
    output, errors = process.communicate()
    if process.returncode:
        assert not target.exists()
        return errors.strip().splitlines()[-1].removeprefix("anchorscope.files.hub.HubError: ")
    table = read_frame(target)
    assert table.height == int(output)
    assert [path.name for path in home.iterdir() if path.name not in ("home", "rows.parquet")] == []
    return table


@pytest.mark.slow
def test_a_table_on_the_hub_keeps_a_subject_called_none_and_an_empty_one(hub, sets, tmp_path):
    table = rows(hub, tmp_path, "owner/table", "", "test")
    assert table["subj"].to_list() == ["None", None, "Utopia"]
    assert table["s_pop"].to_list() == [12, 3, 44]
    questions, counts = normalize(table, "popqa", 0, "owner/table")
    assert counts == {"kept": 3}
    gold = dict(questions.select("question", "gold").iter_rows())
    assert gold["Who is the performer of Utopia?"] == ["Gold Frapp", "Alison É"]


def test_only_the_files_of_the_split_are_downloaded_and_once(hub, sets, tmp_path):
    table = rows(hub, tmp_path, "owner/set", "small", "validation")
    assert table["question"].to_list() == ["who wrote emma", "who wrote it"]
    assert not hub.asked("train|other/|latest")
    hub.requests.clear()
    (tmp_path / "rows.parquet").unlink()
    assert rows(hub, tmp_path, "owner/set", "small", "validation").equals(table)
    assert not hub.asked("resolve")


@pytest.mark.slow
def test_a_dataset_without_a_card_is_found_by_the_names_of_its_files(hub, sets, tmp_path):
    assert rows(hub, tmp_path, "owner/plain", "", "test").height == 2
    assert not hub.asked("latest")


@pytest.mark.slow
def test_a_subset_or_split_that_is_not_there_names_those_that_are(hub, sets, tmp_path):
    assert rows(hub, tmp_path, "owner/set", "", "validation") == (
        "owner/set needs a `subset`: set `subset` in the config to one of small, other."
    )
    assert rows(hub, tmp_path, "owner/set", "large", "validation") == (
        "owner/set has no subset 'large': set `subset` in the config to one of small, other."
    )
    assert rows(hub, tmp_path, "owner/set", "small", "test") == (
        "owner/set has no split 'test': set `split` in the config to one of train, validation."
    )
    assert rows(hub, tmp_path, "owner/table", "", "validation").startswith(
        f"The files of split 'validation' of owner/table at {REVISION} cannot be read (looked for validation*,"
    )


@pytest.mark.slow
def test_a_dataset_from_a_warm_cache_needs_no_network(hub, sets, tmp_path):
    table = rows(hub, tmp_path, "owner/set", "small", "validation")
    (tmp_path / "rows.parquet").unlink()
    assert rows(hub, tmp_path, "owner/set", "small", "validation", HF_HUB_OFFLINE="1").equals(table)


@pytest.mark.slow
def test_a_dataset_file_with_other_bytes_is_refused_before_it_is_read(hub, sets, tmp_path):
    hub.faults.append(Fault("GET .*00001-of-00002", 1, flip=True))
    assert "validation-00001-of-00002.parquet of owner/set does not match the hash" in rows(
        hub, tmp_path, "owner/set", "small", "validation"
    )
    assert rows(hub, tmp_path, "owner/set", "small", "validation").height == 2
    assert json.dumps(hub.requests).count("GET /datasets/owner/set/resolve") == 4  # card, two files, one again


@pytest.mark.slow
def test_a_workflow_that_meets_a_gated_model_says_so_on_the_screen_and_at_the_end_of_its_log(hub, model, tmp_path):
    hub.repositories["owner/model"].token = TOKEN
    folder = copy_project(tmp_path)
    config = {
        "models": {"mine": {"title": "Mine", "hub": "owner/model", "revision": REVISION}},
        "datasets": {"nq-mini": {"title": "NQ-mini", "layout": "nq", "source": "bundled"}},
        "figures": {"flip": {"models": ["mine"]}},
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(config))
    done = subprocess.run(
        [*SNAKEMAKE, "fetch", "--cores", "1", "--configfile", "test.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment(hub.url, tmp_path / "home", HF_TOKEN="hf_of-somebody-else"),
    )
    assert done.returncode == 1
    said = f"owner/model is gated (the hub answered 403): accept its licence at {hub.url}/owner/model"
    assert said in done.stdout + done.stderr
    log = folder / "results/logs/fetch_model/mine.log"
    assert said in log.read_text(encoding="utf-8").strip().splitlines()[-1]
    assert "hf_of-somebody-else" not in done.stdout + done.stderr + log.read_text(encoding="utf-8")
    assert not (folder / "results/models/mine.json").exists()
    assert (folder / "results/raw/nq-mini.parquet").exists(), "what can be fetched is"


@pytest.mark.slow
def test_a_model_and_a_dataset_of_the_hub_are_fetched_once_and_then_run_without_it(hub, tmp_path, tokenizer):
    """With the tokenizer that installs with the environment, so that this is tested wherever tests run."""
    save_model(tmp_path / "saved", tokenizer, seed=0)
    files = {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}
    hub.repositories["owner/model"] = Repository(REVISION, files, token=TOKEN)
    write_questions(tmp_path / "test.jsonl", tokenizer, 60)
    hub.repositories["datasets/owner/set"] = Repository(
        REVISION, {"test.jsonl": (tmp_path / "test.jsonl").read_bytes()}
    )
    folder = copy_project(tmp_path)
    source = {"source": "hub", "repo": "owner/set", "split": "test", "revision": REVISION}
    asked = {"prompt": "few_shot", "dtype": "float32"}  # as the questions were written
    config = {
        "models": {"mine": {"title": "Mine", "hub": "owner/model", "revision": REVISION, **asked}},
        "datasets": {"set": {"title": "Set", "layout": "nq", **source}},
        "figures": {"flip": {"models": ["mine"]}},
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(config))
    said = ""
    for endpoint, target in ((hub.url, "fetch"), ("http://127.0.0.1:9", "results/answers/mine/set/0000.parquet")):
        done = subprocess.run(
            [*SNAKEMAKE, target, "--cores", "2", "--configfile", "test.yaml"],
            cwd=folder,
            capture_output=True,
            text=True,
            env=environment(endpoint, tmp_path / "home", HF_TOKEN=TOKEN),
        )
        said += done.stdout + done.stderr
        assert done.returncode == 0, said
    assert json.loads((folder / "results/models/mine.json").read_text(encoding="utf-8"))["revision"] == REVISION
    assert pl.read_parquet(folder / "results/answers/mine/set/0000.parquet")["right"].sum() > 20
    for path in [*(folder / "results").rglob("*"), *(folder / ".snakemake").rglob("*")]:
        said += path.read_text(errors="replace") if path.is_file() and not path.is_symlink() else ""
    assert TOKEN not in said
