"""What an opened run gives is what its files hold, and one sentence says what is not there."""

import doctest
import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import torch
from matplotlib.colors import to_rgba
from polars.testing import assert_frame_equal

import anchorscope
from anchorscope.api import Results, results
from anchorscope.api.records import Activations
from anchorscope.extract.axes import HEADLINE, passes_of
from anchorscope.extract.store import ActivationWriter
from anchorscope.files.sealed_parquet import DamagedFileError, SealedFile
from gallery import GALLERY
from mutations import check_refusal
from planted_detector import LAYERS, WIDTH, write_activations
from small_things import ROOT

PUBLISHED = {"rule": "flip", "labels": "plotted", "logits": "measured", "intervention": "exact_question"}
HERE = {"component": "resid", "position": "answer_last"}


@pytest.fixture(scope="module")
def run(finished) -> Results:
    return anchorscope.open(finished)


@pytest.fixture(scope="module")
def gallery() -> Results:
    return anchorscope.open(GALLERY)


@pytest.fixture(autouse=True)
def _no_figure_is_left():
    yield
    plt.close("all")


def by_hand(folder: Path, column: str) -> tuple[list[str], np.ndarray]:
    """Ids and vectors of a column, from plain pyarrow, in the order of the ids."""
    component, position, *_ = column.split("/")
    files = sorted(folder.glob(f"*/{component}.{position}.parquet"))
    assert len(files) == 2
    rows = [row for file in files for row in pq.read_table(file, columns=["id", column]).to_pylist()]
    rows.sort(key=lambda row: row["id"])
    return [row["id"] for row in rows], np.stack([np.frombuffer(row[column], np.float32) for row in rows])


@pytest.mark.parametrize(
    "column",
    [
        "resid/answer_last/first/clean/01",
        "mlp/final/second/exact_question/01",
        "resid/answer_last/first/random_question/00",
    ],
)
def test_states_are_those_in_the_files_of_all_shards(column, run):
    names = ("component", "position", "prompt", "intervention", "layer")
    asked = dict(zip(names, column.split("/"), strict=True))
    found = run.activations("tiny", "one", **asked | {"layer": int(asked["layer"])})
    ids, values = by_hand(run.folder / "activations/tiny/one", column)
    assert found.ids.tolist() == ids
    np.testing.assert_array_equal(found.values, values)
    assert found.values.dtype == np.float32


def test_all_layers_are_those_read_one_by_one(run):
    together = run.activations("tiny", "two").values
    apart = [run.activations("tiny", "two", layer=layer).values for layer in range(len(together))]
    np.testing.assert_array_equal(together, np.stack(apart))


def test_labels_and_clusters_beside_states_are_those_of_the_delta_table(run):
    states = run.activations("tiny", "one", layer=0)
    delta = run.delta("tiny", "one").filter(layer=0)
    assert delta["id"].to_list() == states.ids.tolist()
    assert delta["hallucinated"].to_list() == states.hallucinated.tolist()
    assert delta["cluster"].to_list() == states.cluster.tolist()


def test_the_mean_of_delta_is_the_summarys_curve_of_all_examples(run):
    for intervention in ("exact_question", "random_question"):
        for place in (HERE, {"component": "attn", "position": "before_answer"}):
            mean = (
                run.delta("tiny", "one", intervention=intervention, **place).group_by("layer").agg(pl.mean("delta_p"))
            )
            wanted = {**PUBLISHED, **place, "intervention": intervention, "anchor": "all", "dataset": "one"}
            expected = run.summary().filter(**wanted).select("layer", "delta_p")
            assert_frame_equal(mean.sort("layer"), expected.sort("layer"), check_dtypes=False, abs_tol=1e-4)


def test_raw_delta_gives_the_published_groups(run):
    """Examples are grouped by their own flip in each repeat; the curve is the mean of the repeats that have some."""
    rows = run.delta("tiny", "one", raw=True)
    groups = rows.group_by("repeat", "layer", "flips").agg(pl.mean("delta_p")).group_by("layer", "flips")
    means = groups.agg(pl.mean("delta_p")).with_columns(
        anchor=pl.col("flips").replace_strict({True: "question", False: "answer"})
    )
    wanted = run.summary().filter(pl.col("anchor").is_in(["question", "answer"]), **PUBLISHED, **HERE, dataset="one")
    both = means.join(wanted, on=["layer", "anchor"], suffix="_expected")
    assert both.height == wanted["delta_p"].is_not_null().sum() > 0
    np.testing.assert_allclose(both["delta_p"], both["delta_p_expected"], atol=1e-4)


def test_delta_has_a_row_per_example_and_layer_with_the_share_of_repeats_that_flip(run):
    delta, raw = run.delta("tiny", "one"), run.delta("tiny", "one", raw=True)
    assert delta.select("id", "layer").is_unique().all()
    assert raw.height == raw["repeat"].n_unique() * delta.height
    one = delta.row(7, named=True)
    mine = raw.filter(id=one["id"], layer=one["layer"])
    for name in ("p_clean", "p_ko", "delta_p", "flips"):
        assert one[name] == pytest.approx(np.mean(mine[name].to_list()), abs=1e-6)


def test_probes_give_the_out_of_fold_logits_of_the_delta_table(run):
    states, probe = run.activations("tiny", "one", layer=1), run.probe("tiny", "one", layer=1)
    rows = run.delta("tiny", "one", raw=True).filter(layer=1)
    for (repeat,), some in rows.group_by("repeat"):
        some = some.sort("id")
        assert some["id"].to_list() == states.ids.tolist()
        weight, bias = (array[repeat][some["fold"].to_numpy()] for array in (probe.weight, probe.bias))
        logits = (states.values * weight).sum(1) + bias
        np.testing.assert_allclose(logits, some["logit_clean_full"], atol=1e-4)


def test_answers_are_those_of_all_shards_with_what_became_of_them(run):
    found = run.answers("tiny", "one")
    asked, chosen = (
        pl.concat([pl.read_parquet(file) for file in sorted((run.folder / stage / "tiny/one").iterdir())])
        for stage in ("answers", "chosen")
    )
    names = ["id", "question", "answer", "right", "refused", "gold"]
    assert_frame_equal(found.select(names), asked.select(names))
    assert set(found.filter("analysed")["id"]) == set(chosen["id"])
    deepest = pl.read_parquet(run.folder / "deepest.parquet").filter(dataset="one", intervention="exact_question")
    flipped = set(deepest.filter("question_anchored")["id"])
    assert set(found.filter(anchor="question")["id"]) == flipped
    assert set(found.filter(anchor="answer")["id"]) == set(deepest["id"]) - flipped
    everything = run.answers()
    assert_frame_equal(everything.filter(dataset="one"), found)
    assert everything["dataset"].unique(maintain_order=True).to_list() == run.datasets == ["one", "two"]
    assert_frame_equal(run.answers(dataset="two"), everything.filter(dataset="two"))


def test_claims_are_those_of_the_page(gallery):
    page = json.loads((GALLERY / "claims.json").read_text(encoding="utf-8"))
    found = gallery.claims()
    assert found["effect"].to_list() == [row["effect"] for row in page["claims"]]
    assert set(found["statement"]) <= set(page["statements"].values())


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in ("share", "push") else pytest.mark.slow)
        for kind in anchorscope.open(GALLERY).figures
    ],
)
def test_every_figure_that_a_run_has_is_drawn(kind, gallery):
    figure = gallery.plot(kind, "smollm2-135m")
    assert plt.get_fignums() == [], "a notebook shows it once, as the value of a cell"
    assert any(panel.get_lines() or panel.collections or panel.patches for panel in figure.axes)


def test_a_figure_has_the_titles_and_the_width_that_are_asked_for(gallery):
    (panel,) = gallery.plot("family", {"smollm2-135m": "Mine"}).axes
    assert panel.get_title() == "Mine"
    both = gallery.plot("family", datasets=["nq"])
    assert [panel.get_title().replace("\n", " ") for panel in both.axes] == [
        gallery.record["config"]["models"][name]["title"] for name in gallery.models
    ]
    assert both.dpi == matplotlib.rcParams["figure.dpi"]
    narrow = gallery.plot("push", column=True)
    assert len(narrow.axes) == 6
    assert narrow.get_figwidth() == pytest.approx(3.3)


def test_figures_take_the_style_that_is_set(gallery):
    def behind(**given: str) -> tuple:
        return gallery.plot("share", "smollm2-135m", "nq", **given).axes[0].get_facecolor()

    usual = behind()
    with plt.style.context("ggplot"):
        assert behind() == to_rgba(plt.rcParams["axes.facecolor"]) != usual
    assert behind(style="ggplot") != usual


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda run: run.delta("smollm2", "nq"),
            r"no model smollm2 \(did you mean smollm2-135m\?\); it has smollm2-135m,",
        ),
        (lambda run: run.answers(dataset="NQ"), r"no dataset NQ; it has popqa, triviaqa, hotpotqa, nq\."),
        (lambda run: run.plot("famly"), r"no figure famly \(did you mean family\?\); it has family, honest, push,"),
        (lambda run: run.plot("transfer"), r"no figure transfer; it has family, honest, push,"),
        (lambda run: run.plot(models=[]), r"models is \[\]; it must be names, or names with the titles to show\."),
        (lambda run: run.table("sumary"), r"no table sumary \(did you mean summary\?\); it has accounts, deepest,"),
        (lambda run: run.activations("smollm2-135m", "nq", component="mlp"), "no component mlp; it has resid."),
        (lambda run: run.probe("smollm2-135m", "nq", 3, position="final"), "no position final; it has answer_last."),
        (lambda run: run.activations("smollm2-135m", "nq", prompt="third"), "no prompt third; it has first, second."),
        (
            lambda run: run.activations("smollm2-135m", "nq", prompt="second", intervention="random_question"),
            r"The second prompt has no intervention random_question \(.*\); it has clean, exact_question\.",
        ),
        (lambda run: anchorscope.open(3), "folder is 3; it must be the path of a run's results."),
    ],
)
def test_what_nobody_knows_is_refused_with_what_is_known(ask, said, gallery):
    with pytest.raises(ValueError, match=said) as raised:
        ask(gallery)
    assert "\n" not in str(raised.value)


ANYTHING = [3, 2.5, True, "", "x", [], ["x"], {}, {"nq": 3}, b"x", {1}, "a\0b", "../x", "x" * 5000, "\ud800", object()]


@pytest.mark.parametrize(
    "asked", ["answers", "delta", "activations", "probe", "detector", "table", "plot"], ids=lambda name: name
)
def test_whatever_is_asked_the_answer_is_a_sentence(asked, gallery):
    """No hidden state is in the gallery, and no figure is of what these name."""
    method = getattr(gallery, asked)
    needed = {"model": "smollm2-135m", "dataset": "nq", "layer": 0, "name": "layers", "kind": "family"}
    names = [name for name in inspect.signature(method).parameters if name not in ("raw", "column", "style")]
    usual = {name: needed[name] for name in names if name in needed}
    for name in names:
        for value in ANYTHING:
            with pytest.raises((ValueError, FileNotFoundError)) as raised:
                method(**usual | {name: value})
            check_refusal(raised.value)


def test_whatever_is_opened_the_answer_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in ANYTHING:
        with pytest.raises((ValueError, FileNotFoundError)) as raised:
            anchorscope.open(value)
        check_refusal(raised.value)


@pytest.mark.parametrize(
    ("ask", "file"),
    [
        (lambda run: run.delta("smollm2-135m", "nq"), "delta/smollm2-135m/nq.parquet"),
        (lambda run: run.answers("smollm2-135m", "nq"), "answers/smollm2-135m/nq/0000.parquet"),
        (lambda run: run.probe("smollm2-135m", "nq", 3), "probes/smollm2-135m/nq/resid.answer_last.parquet"),
        (
            lambda run: run.activations("smollm2-135m", "nq", layer=3),
            "activations/smollm2-135m/nq/0000/resid.answer_last.parquet",
        ),
        (lambda run: run.detector("smollm2-135m"), "detectors/smollm2-135m.safetensors"),
    ],
)
def test_a_folder_with_tables_alone_says_what_is_missing_and_what_makes_it(ask, file, gallery):
    with pytest.raises(FileNotFoundError) as raised:
        ask(gallery)
    said = str(raised.value)
    assert said.startswith(f"{GALLERY / file} does not exist: the run is not finished, or only a part of it is here;")
    assert f"`snakemake --cores all results/{file}` makes it" in said
    assert "\n" not in said


def test_a_layer_that_the_model_does_not_have_is_refused(run):
    for ask in (run.activations, run.probe):
        with pytest.raises(ValueError, match="layer is 9; it must be a whole number from 0 to "):
            ask("tiny", "one", layer=9)


def test_a_folder_without_a_finished_run_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone is no folder; name the results of a run\."):
        anchorscope.open(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match=r"holds no run: provenance\.json is missing; `snakemake --cores all`"):
        anchorscope.open(tmp_path)
    (tmp_path / "results/answers").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "results"):
        with pytest.raises(
            FileNotFoundError, match=r"results is not finished: provenance\.json is missing; go on with"
        ):
            anchorscope.open(folder)
    for text in ("{", "[]", '{"config": {"models": {}}}'):
        (tmp_path / "results/provenance.json").write_text(text)
        with pytest.raises(ValueError, match=r"provenance\.json does not describe a run \(.*\); make it again\."):
            anchorscope.open(tmp_path)


@pytest.fixture
def planted(tmp_path) -> Results:
    """A run with nothing in it but states of 4,000 examples, of which every other one has a subject to cut."""
    folder = tmp_path / "results"
    file = write_activations(folder / "activations/tiny/one/0000", seed=0, right=2000, wrong=2000)
    keys = pq.read_table(file, columns=["id", "right", "subject", "popularity"]).to_pylist()
    keys = [key | {"cut": number % 2} for number, key in enumerate(keys)]
    states = torch.ones(1, LAYERS, len(passes_of("subject")), 1, len(keys), WIDTH)
    with ActivationWriter(file.parent, LAYERS, WIDTH, torch.float32, {}, HEADLINE, knockout="subject") as writer:
        writer.add(keys, states)
    cuts = {"interventions": ["exact_question", "subject"], "windows": []}
    config = {"headline": HERE, "questions": 4000, "shard_size": 4000, "models": {"tiny": {}}, "datasets": {"one": {}}}
    (folder / "provenance.json").write_text(json.dumps({"config": config | cuts}))
    return anchorscope.open(tmp_path)


def test_where_nothing_is_cut_there_are_no_states(planted):
    cut = planted.activations("tiny", "one", layer=0, intervention="subject")
    places = dict(zip(cut.ids.tolist(), np.isnan(cut.values).all(1).tolist(), strict=True))
    assert places == {f"q{number}": number % 2 == 0 for number in range(4000)}
    assert np.isfinite(planted.activations("tiny", "one", layer=0).values).all()


def test_only_the_asked_layer_is_read_and_damage_in_it_is_noticed(planted):
    file = planted.folder / "activations/tiny/one/0000/resid.answer_last.parquet"
    ((start, end),) = SealedFile(file).stretches["resid/answer_last/first/clean/03"]
    with file.open("r+b") as stream:
        stream.seek((start + end) // 2)
        stream.write(b"\xff\xff\xff\xff")
    assert isinstance(planted.activations("tiny", "one", layer=0), Activations)
    with pytest.raises(DamagedFileError, match="do not match their checksum"):
        planted.activations("tiny", "one", layer=3)


def test_a_shard_that_is_missing_is_not_passed_over(planted, tmp_path):
    record = json.loads((planted.folder / "provenance.json").read_text())
    record["config"]["questions"] = 4001
    (planted.folder / "provenance.json").write_text(json.dumps(record))
    with pytest.raises(FileNotFoundError, match=r"0001/resid\.answer_last\.parquet does not exist"):
        anchorscope.open(tmp_path).activations("tiny", "one", layer=0)


def test_a_damaged_table_is_noticed_when_it_is_read(tmp_path):
    shutil.copytree(GALLERY, tmp_path / "mine")
    table = tmp_path / "mine/layers.parquet"
    data = bytearray(table.read_bytes())
    data[len(data) // 3] ^= 1
    table.write_bytes(data)
    opened = anchorscope.open(tmp_path / "mine")
    assert opened.summary().height
    with pytest.raises(DamagedFileError, match=r"layers\.parquet is damaged"):
        opened.table("layers")


def test_what_opens_a_run_needs_no_torch_and_what_reads_tables_no_matplotlib():
    code = (
        "import sys, anchorscope\n"
        "before = set(sys.modules)\n"
        "run = anchorscope.open('docs/gallery'); repr(run), run.summary(), run.claims(), run.figures\n"
        "print([name for name in ('polars', 'pyarrow', 'numpy') if name in before])\n"
        "print([name for name in ('torch', 'matplotlib') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]
    assert {"open", "load_detector", "api"} <= set(dir(anchorscope))


EXAMPLES = [test for test in doctest.DocTestFinder().find(results, "results", results) if test.examples]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_examples_in_docstrings_give_what_they_show(example, request, tmp_path, monkeypatch):
    """The finished small run stands for the default one, under its names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    example.globs = {"anchorscope": anchorscope, "np": np, "pl": pl}
    if "nq-mini" in example.docstring:
        example.globs["run"] = request.getfixturevalue("run")
        for one in example.examples:
            one.source = one.source.replace("smollm2-135m", "tiny").replace("nq-mini", "one")
    failures = doctest.DocTestRunner(verbose=False).run(example).failed
    assert failures == 0


def test_every_public_method_has_an_example():
    shown = {example.name for example in EXAMPLES}
    public = [name for name in vars(Results) if not name.startswith("_") and name not in ("folder", "record")]
    assert {name for name in public if f"results.Results.{name}" not in shown} == {"detector"}
