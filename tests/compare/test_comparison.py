"""Two runs side by side, from their files to figure, table and page: what is matched, what is said, what is refused."""

import json
from pathlib import Path

import matplotlib.image
import numpy as np
import polars as pl
import pytest
import yaml
from matplotlib.colors import to_hex

from anchorscope.compare.finished import read_finished
from anchorscope.compare.job import compare_runs
from anchorscope.compare.judging import as_table, beside_other
from anchorscope.compare.matching import also_different, match_runs
from anchorscope.compare.picture import draw_comparison
from anchorscope.draw.style import PALE
from anchorscope.files.frames import read_frame, write_frame
from planted_runs import level, plant_run
from read_figures import clashing, legend, outside
from small_things import ROOT

LANDMARKS = ROOT / "workflow/resources/landmarks.yaml"
PUBLISHED = yaml.safe_load(LANDMARKS.read_text(encoding="utf-8"))
GALLERY = ROOT / "docs/gallery"
SHAPES = {"llama-3.2-1b": 16, "llama-3.2-3b": 28, "qwen3-8b": 36, "qwen3-32b": 64}
HUBS = dict(zip(SHAPES, PUBLISHED["models"], strict=True))


def reasons(here: Path, there: Path) -> set[str | None]:
    return {match.because for match in match_runs(read_finished(here), read_finished(there))}


@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({"layers": {"m": 5}}, "other layers: 4 here, 5 there"),
        ({"layers": {"n": 4}}, "the other run does not have this model"),
        ({"weights": "random"}, "other weights: trained here, random there"),
        ({"config": {"balance": "form"}}, "other balance: True here, form there"),
        ({"config": {"folds": 10}}, "other folds: 5 here, 10 there"),
        ({"config": {"models": {"m": {"title": "m", "prompt": "chat"}}}}, "other prompt: few_shot here, chat there"),
        ({"place": "final"}, "the other run did not measure resid at answer_last"),
        ({"datasets": {"other": "Other"}}, "the other run does not have these questions"),
    ],
)
def test_what_cannot_be_compared_says_why(change, because, tmp_path):
    here = plant_run(tmp_path / "a", {"m": 4}, datasets={"nq": "NQ"})
    wanted = {"layers": {"m": 4}, "datasets": {"nq": "NQ"}} | change
    assert reasons(here, plant_run(tmp_path / "b", **wanted)) == {because}


def test_another_revision_of_the_questions_is_not_compared_and_the_others_are(tmp_path):
    here = plant_run(tmp_path / "a", {"m": 4})
    there = plant_run(tmp_path / "b", {"m": 4}, revisions={"nq": "1"})
    found = {match.dataset: match for match in match_runs(read_finished(here), read_finished(there))}
    assert found["nq"].because == "its questions are others in the other run (another file or revision)"
    assert found["popqa"].other == ("m", "popqa")


def test_models_and_datasets_are_found_by_what_they_are_whatever_their_names(tmp_path):
    """In the gallery's own tables under other names: weights by their hash, questions by that of their file."""
    renamed = {"smollm2-135m": "small", "qwen2.5-coder-1.5b": "large", "popqa": "pop"}
    folder = tmp_path / "renamed"
    folder.mkdir()
    for name in ("claims.json", "provenance.json"):
        text = (GALLERY / name).read_text(encoding="utf-8")
        for old, new in renamed.items():
            text = text.replace(f'"{old}"', f'"{new}"')
        made = json.loads(text)
        if name == "provenance.json":
            made["config"]["datasets"]["pop"]["layout"] = "popqa"
        (folder / name).write_text(json.dumps(made), encoding="utf-8")
    plant = read_frame(GALLERY / "summary.parquet").with_columns(pl.col("model", "dataset").replace(renamed))
    write_frame(folder / "summary.parquet", plant, {})
    this, that = read_finished(GALLERY), read_finished(folder)
    matches = match_runs(this, that)
    assert {match.other for match in matches if match.dataset == "popqa"} == {("small", "pop"), ("large", "pop")}
    assert all(row.difference in (0.0, None) for row in beside_other(this, that, matches))


def test_the_same_repository_at_another_revision_is_compared_and_said_to_be_other_weights(tmp_path):
    here = read_finished(plant_run(tmp_path / "a", {"m": 4}, hubs={"m": "owner/m"}))
    there = read_finished(plant_run(tmp_path / "b", {"n": 4}, hubs={"n": "owner/m"}, config={"seed": 7}))
    matches = match_runs(here, there)
    assert all(match.other == ("n", match.dataset) for match in matches)
    said = ["weights of m (of m here, of n there)", "seed (0 here, 7 there)"]
    assert also_different(here, there, matches) == said
    assert also_different(here, here, match_runs(here, here)) == []


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Path:
    """Two published models, of which one curve is moved, beside the same with random noise."""
    folder, noise = tmp_path_factory.mktemp("compared"), np.random.default_rng(0)
    some = dict(list(SHAPES.items())[:2])

    def noisy(*names) -> np.ndarray:
        return level(*names) + noise.normal(0, 0.5, names[-1])

    def moved(*names) -> np.ndarray:
        return noisy(*names) - 30 * (names[1:3] == ("nq", "question"))

    plant_run(folder / "a/results", some, moved, hubs=HUBS)
    plant_run(folder / "b", some, noisy, hubs=HUBS)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    said = compare_runs(folder / "a", folder / "b", output=folder / "out", landmarks=LANDMARKS)
    (folder / "said.txt").write_text(said, encoding="utf-8")
    assert {path: path.read_bytes() for path in before} == before, "runs are only read"
    return folder


def test_figure_table_and_page_are_written_and_say_the_same(compared):
    out = compared / "out"
    assert sorted(path.name for path in out.iterdir()) == [f"comparison.{end}" for end in ("csv", "md", "png", "svg")]
    table = pl.read_csv(out / "comparison.csv")
    counts = {key: group.height for key, group in table.group_by("against", "verdict")}
    assert counts["other run", "beyond"] == 2, "one moved curve of each model"
    said, page = (path.read_text(encoding="utf-8") for path in (compared / "said.txt", out / "comparison.md"))
    for against, heading in (("published", "The published figures"), ("other run", "The other run")):
        numbers = [counts.get((against, verdict), 0) for verdict in ("within", "beyond", "not comparable")]
        assert "{}: {} within, {} beyond, {} not comparable.".format(heading, *numbers) in said
        assert f"## {heading}\n" in page
    assert page.count("| beyond |") + page.count("| beyond: ") == sum(table["verdict"] == "beyond")
    assert "  beyond: Llama-3.2-1B on NQ, Question-Anchored curve (layer " in said
    assert "](comparison.svg)" in page
    assert "| 1. Question-Anchored lies below Answer-Anchored | Llama-3.2-1B | all | as measured | supported: " in page


def test_the_picture_is_as_wide_as_a_page_and_has_every_panel(compared):
    height, width, _ = matplotlib.image.imread(compared / "out/comparison.png").shape
    assert width == 6.9 * 300
    assert height < 1.2 * width
    svg = (compared / "out/comparison.svg").read_text(encoding="utf-8")
    for text in ("Llama-3.2-1B", "Llama-3.2-3B", "PopQA", "NQ", "Q-Anchored, other run", "published ± 10 points"):
        assert text in svg


@pytest.mark.parametrize("count", [1, 4])
def test_nothing_is_cut_off_or_on_top_of_another_with_one_model_and_with_four(count, tmp_path):
    some = dict(list(SHAPES.items())[-count:])
    run = read_finished(plant_run(tmp_path / "a", some, hubs=HUBS))
    figure = draw_comparison(run, run, match_runs(run, run), PUBLISHED)
    assert outside(figure) == []
    assert clashing(figure) == []


def test_marks_are_where_the_landmarks_say(tmp_path):
    run = read_finished(plant_run(tmp_path, {"llama-3.2-1b": 16}, hubs=HUBS))
    figure = draw_comparison(run, None, [], PUBLISHED)
    panels = dict(zip(run.datasets, figure.axes, strict=True))
    cores = {
        name: {
            (round(box.ymin), round(box.ymax))
            for part in panel.collections
            if to_hex(part.get_facecolor()[0]) == to_hex(PALE)
            for box in [part.get_paths()[0].get_extents()]
        }
        for name, panel in panels.items()
    }
    ranges = {(-20, -10), (-45, -30), (-10, 0)}
    assert "published, as read off the figure" in legend(figure)
    assert cores == {name: ranges | ({(-55, -55)} if name == "popqa" else set()) for name in panels}


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"weights": "random"}, "random weights; their numbers mean nothing about trained models."),
        ({"source": "bundled"}, "questions bundled with Anchorscope, not the published datasets."),
    ],
)
def test_figure_and_page_say_where_weights_are_random_and_questions_are_bundled(change, note, tmp_path):
    run = plant_run(tmp_path / "run", {"m": 4}, **change)
    title = draw_comparison(read_finished(run), None, [], PUBLISHED)._suptitle.get_text()
    assert note in " ".join(title.split())
    compare_runs(run, output=tmp_path, landmarks=LANDMARKS)
    assert note in (tmp_path / "comparison.md").read_text(encoding="utf-8")


def call_honest_replicate(folder: Path) -> None:
    earlier = read_frame(folder / "summary.parquet").with_columns(rule=pl.lit("replicate"))
    write_frame(folder / "summary.parquet", earlier, {})


def break_summary(folder: Path) -> None:
    data = bytearray((folder / "summary.parquet").read_bytes())
    data[100] ^= 1
    (folder / "summary.parquet").write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "summary.parquet").unlink(), "summary.parquet does not exist: the run is not"),
        (lambda folder: (folder / "claims.json").unlink(), "claims.json does not exist: the run is not finished"),
        (lambda folder: (folder / "provenance.json").unlink(), "run holds no run: provenance.json is missing; "),
        (lambda folder: (folder / "provenance.json").write_text("{"), "provenance.json does not describe a run (Expec"),
        (lambda folder: (folder / "provenance.json").write_text("{}"), "json does not describe a run ('config'); make"),
        (lambda folder: (folder / "claims.json").write_text("{"), "claims.json is damaged (Expecting property name"),
        (lambda folder: (folder / "claims.json").write_text("{}"), "lacks what a run writes there ('statements')"),
        (lambda folder: (folder / "claims.json").write_text("[]"), "lacks what a run writes there (list indices"),
        (call_honest_replicate, "was made by an older version, which called the honest rule `replicate`; run the"),
        (break_summary, "summary.parquet is damaged (its bytes 0 to "),
    ],
)
def test_what_is_missing_or_damaged_is_one_sentence_and_nothing_is_written(damage, said, tmp_path):
    run = plant_run(tmp_path / "run", {"m": 4})
    damage(run)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        compare_runs(run, output=tmp_path / "out", landmarks=LANDMARKS)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_name_that_a_spreadsheet_would_run_is_only_text_in_the_table(tmp_path):
    run = plant_run(tmp_path / "run", {"m": 4}, hubs={"m": "owner/m"}, datasets={"=nq": "NQ"})
    compare_runs(run, run, output=tmp_path / "out", landmarks=LANDMARKS)
    assert set(pl.read_csv(tmp_path / "out/comparison.csv")["dataset"].drop_nulls()) == {"'=nq"}


def test_a_file_in_place_of_the_output_is_one_sentence(tmp_path):
    run = plant_run(tmp_path / "run", {"m": 4})
    with pytest.raises(ValueError, match=r"claims\.json is no folder; name one for the comparison\.$"):
        compare_runs(run, output=run / "claims.json", landmarks=LANDMARKS)


def test_a_reason_that_holds_for_many_numbers_is_said_once(tmp_path):
    run, other = (plant_run(tmp_path / name, {"m": 4}, examples=count) for name, count in (("a", 100), ("b", 19)))
    said = compare_runs(run, other, output=tmp_path / "out", landmarks=LANDMARKS).splitlines()
    reason = "one of the runs has too few examples there, or a probe no better than chance."
    assert [line for line in said if reason in line] == [f"  not comparable: m, 8 times: {reason}"]


def test_a_table_of_nothing_but_what_cannot_be_compared_has_all_columns(tmp_path):
    run = read_finished(plant_run(tmp_path / "a", {"m": 4}))
    other = read_finished(plant_run(tmp_path / "b", {"n": 4}))
    table = as_table(beside_other(run, other, match_runs(run, other)))
    assert table.height == 1
    assert table["reach"].dtype == pl.Float64
