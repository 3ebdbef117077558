"""Without the workflow: a model in hand gives what the workflow gives."""

import copy
import json
import subprocess
import sys
from collections import Counter

import matplotlib.style
import polars as pl
import pytest
import torch
from matplotlib.colors import to_rgba
from polars.testing import assert_frame_equal
from transformers import AutoModelForCausalLM, AutoTokenizer

from anchorscope import api
from anchorscope.draw.style import read_style
from anchorscope.extract.axes import COMPONENTS, EXACT, PASSES, POSITIONS, Grid
from anchorscope.extract.store import ActivationReader
from anchorscope.files.sealed_parquet import made_from, provenance, read_table, write_table
from anchorscope.probe.anchor_rules import FULL
from anchorscope.probe.examples import TooFew
from anchorscope.probe.kept import read_probes
from anchorscope.probe.written import write_probed
from rounding import assert_same, of_a_pass, of_logits, of_sureness
from small_things import ROOT

STYLES: dict[str, dict] = {"bundled": {}, "ggplot": {"style": "ggplot"}}


@pytest.fixture(scope="module")
def in_hand(finished):
    folder = finished / "tiny-model"
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def first_shard(finished) -> list[dict]:
    """The questions of the workflow's first shard, as a user would have them."""
    asked = pl.read_parquet(finished / "results/answers/tiny/one/0000.parquet")
    return asked.select("question", "gold").to_dicts()


def test_extract_gives_the_workflows_answers_and_activations(in_hand, first_shard, finished, tmp_path):
    folder = tmp_path / "activations"
    answers = api.extract(*in_hand, first_shard, folder, components=COMPONENTS, positions=POSITIONS, prompt="few_shot")
    written, sure = pl.read_parquet(finished / "results/answers/tiny/one/0000.parquet"), ["logprobs", "entropies"]
    assert_frame_equal(answers.drop(sure), written.drop(sure))
    for name in sure:  # no sequence has more tokens
        assert_same(answers[name].explode(), written[name].explode(), of_sureness(in_hand[0], 256))
    mine = ActivationReader([folder])
    theirs = ActivationReader([finished / "results/activations/tiny/one/0000"])
    assert mine.keys == theirs.keys
    for component in COMPONENTS:
        for position in POSITIONS:
            for run in PASSES:
                where = (component, position, *run, range(mine.layers))
                expected = theirs.read(*where)
                assert_same(mine.read(*where), expected, of_a_pass(in_hand[0], 256, expected))


def test_summarise_gives_the_workflows_summary(finished):
    folders = sorted((finished / "results/activations/tiny/one").iterdir())
    mine = api.summarise(folders, model="tiny", dataset="one", bootstrap_draws=200)
    theirs = api.load_summary(finished / "results/summary.parquet").filter(dataset="one")
    assert set(mine["source"]) == {"given"}
    keys = ["component", "position", "intervention", "rule", "labels", "logits", "anchor", "layer"]
    assert_frame_equal(mine.drop("source"), theirs.drop("source"), check_row_order=False)
    assert pl.concat([mine, theirs]).height == 2 * mine.height, "one's own model beside a run's"
    assert mine.select(keys).is_unique().all()


def test_a_model_in_hand_reaches_a_figure(in_hand, finished, tmp_path):
    lines = (finished / "one.jsonl").read_text().splitlines()[:60]
    examples = [{"question": row["question"], "gold": row["answer"]} for row in map(json.loads, lines)]
    path = tmp_path / "activations"
    answers = api.extract(*in_hand, examples, path, balance=False, windows=[1], prompt="few_shot")
    assert answers.height == len(examples)
    summary = api.summarise(path, model="mine", bootstrap_draws=100)
    figure = api.plot_family(summary, models={"mine": "My model"}, intervention="exact_question_w1")
    assert [panel.get_title() for panel in figure.axes] == ["My model"]
    assert "cut in the layer plotted only" in figure.get_suptitle()
    assert summary.filter(anchor="all")["n"].unique().to_list() == [answers["refused"].not_().sum()]
    api.extract(*in_hand, examples[:4], path, balance=False, prompt="few_shot")
    assert len(list(path.iterdir())) == 1, "nothing is left of an extraction that cut more"


def test_balance_within_forms_keeps_as_many_right_as_wrong_of_each(in_hand, tmp_path):
    """The model's own answers are the accepted ones: for most questions with who, and for few with where."""
    asked = [f"{word} is number {number} of the river" for word in ("who", "where") for number in range(16)]
    said = api.extract(*in_hand, [{"question": one, "gold": ["x"]} for one in asked], tmp_path, prompt="few_shot")
    examples = [
        {"question": row["question"], "gold": [row["exact_answer"] if often == (index % 4 > 0) else "nothing of it"]}
        for index, row in enumerate(said.filter(~pl.col("refused")).to_dicts())
        for often in [row["question_form"] == "who"]
    ]
    answers = api.extract(*in_hand, examples, tmp_path, balance="form", prompt="few_shot")
    before = Counter(answers.filter(~pl.col("refused")).select("question_form", "right").iter_rows())
    kept = Counter((key["question_form"], key["right"]) for key in ActivationReader([tmp_path]).keys)
    for form in ("who", "where"):
        fewer = min(before[form, True], before[form, False])
        assert kept[form, True] == kept[form, False] == fewer > 0
    assert before["who", True] > before["who", False]
    assert before["where", True] < before["where", False]


@pytest.mark.slow
def test_who_chose_the_words_is_asked_of_those_who_have_such_words(in_hand, finished, tmp_path):
    """An example without a subject counts under `exact_question`, but in no mean under `subject`."""
    lines = (finished / "one.jsonl").read_text().splitlines()
    examples = [
        {
            "question": row["question"],
            "gold": row["answer"],
            "subject": row["question"].split()[-1] if number % 4 else None,
        }
        for number, row in enumerate(map(json.loads, lines))
    ]
    cuts = ["subject", "whole_question"]
    answers = api.extract(*in_hand, examples, tmp_path, balance=False, interventions=cuts, prompt="few_shot")
    summary = api.summarise(tmp_path, bootstrap_draws=100)
    counted = dict(summary.filter(rule="flip", anchor="all", layer=1).select("intervention", "n").iter_rows())
    usable = answers.filter(~pl.col("refused"))
    everyone, named = usable.height, usable["subject"].is_not_null().sum()
    assert counted == {
        **dict.fromkeys(["exact_question", "random_question", "whole_question", "random_whole_question"], everyone),
        **dict.fromkeys(["subject", "random_subject"], named),
    }
    assert 40 < named < everyone
    both = summary.filter(rule="honest", anchor="all", layer=1).select("intervention", "delta_p")
    assert both["delta_p"].is_finite().all()


@pytest.mark.parametrize("style", ["chat", "few_shot"])
def test_the_prompt_is_the_chat_template_where_the_model_ends_its_text_as_the_template_does(
    in_hand, first_shard, style, tmp_path
):
    model, tokenizer = in_hand
    own = copy.deepcopy(tokenizer)
    mark = own.convert_ids_to_tokens(model.config.eos_token_id) if style == "chat" else "!"
    own.chat_template = "{% for turn in messages %}{{ turn.content }}" + mark + "{% endfor %}"
    api.extract(model, own, first_shard[:4], tmp_path / "x", balance=False)
    (file,) = (tmp_path / "x").iterdir()
    bundled = json.loads((ROOT / "workflow/resources/prompts.json").read_text())
    assert made_from(file)["prompts"] == {name: bundled[style][name] for name in ("first", "second")}


def test_the_model_is_left_as_it_was(in_hand, first_shard, tmp_path):
    model, tokenizer = in_hand
    ids = torch.arange(5, 25)[None]
    with torch.inference_mode():
        before = model(ids).logits
        model.train()
        api.extract(model, tokenizer, examples=first_shard[:4], folder=tmp_path / "x", balance=False)
        assert model.training
        model.eval()
        assert torch.equal(model(ids).logits, before)
    assert not (tmp_path / "x.parquet.part").exists()


@pytest.mark.parametrize(
    ("examples", "options", "said"),
    [
        ([{"question": "who?", "gold": "Paris"}], {}, "The answers of example 0 are a text; they must be a list"),
        ([{"question": "who?", "gold": ["x"]}, {"gold": []}], {}, "Example 1 has no question"),
        ([{"question": "who?"}], {}, "Example 0 has no answers"),
        ([{"question": 7, "answers": ["x"]}], {}, "The question of example 0 is 7, not a text"),
        (7, {}, "examples is 7; it must be a list of questions with their answers"),
        ([7], {}, "Example 0 is 7; it must have a question and answers by name"),
        ([{"question": "who?", "answers": 7}], {}, "The answers of example 0 are 7; they must be a list"),
        ([{"question": "who?", "answers": [7]}], {}, "An answer of example 0 is 7, not a text"),
        ([{"question": "\ud800", "answers": ["x"]}], {}, r"The question of example 0 is '\\ud800', not a text"),
        ([], {"components": 7}, "components is 7; it must be a list of some of resid, attn, mlp"),
        ([], {"batch_tokens": 0}, "batch_tokens is 0; it must be a whole number of at least 1"),
        ([], {"seed": -1}, "seed is -1; it must be a whole number of at least 0"),
        ([], {"prompt": "zero_shot"}, "prompt is 'zero_shot'; it must be few_shot, chat or auto"),
        (
            [],
            {"interventions": ["object"]},
            r"interventions is \['object'\]; it must be a list of some of exact_question",
        ),
        ([], {"windows": [0]}, r"windows is \[0\]; it must be a list of numbers of layers"),
    ],
)
def test_a_mistake_is_one_sentence_before_any_work(in_hand, examples, options, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        api.extract(*in_hand, examples, tmp_path / "x", **options)
    assert not list(tmp_path.iterdir())


def test_what_is_no_summary_is_one_sentence(finished, tmp_path):
    with pytest.raises(ValueError, match=r"summary\.parquet does not exist; name a summary"):
        api.load_summary(tmp_path / "summary.parquet")
    with pytest.raises(ValueError, match=r"summary\.csv is not a Parquet file; name a summary"):
        api.load_summary(finished / "results/summary.csv")
    with pytest.raises(ValueError, match=r"questions/one\.parquet is no summary: it has no model, dataset, rule"):
        api.load_summary(finished / "results/questions/one.parquet")
    earlier = pl.from_arrow(read_table(finished / "results/summary.parquet"))
    earlier = earlier.with_columns(pl.col("rule").replace("honest", "replicate"))
    write_table(tmp_path / "earlier.parquet", earlier.to_arrow(), provenance())
    with pytest.raises(
        ValueError, match=r"earlier\.parquet was made by an older version, .* `replicate`; run the work"
    ):
        api.load_summary(tmp_path / "earlier.parquet")


def test_probes_come_back_as_arrays_that_give_the_logits_of_the_delta_table(finished):
    path = finished / "results/probes/tiny/one/mlp.final.parquet"
    kept = api.load_probes(path)
    assert (kept.component, kept.position) == ("mlp", "final")
    folders = sorted((finished / "results/activations/tiny/one").iterdir())
    reader = ActivationReader(folders, Grid(("mlp",), ("final",)), [EXACT])
    states = reader.read("mlp", "final", "first", "clean", range(reader.layers))
    clean, roundings = states.double().numpy(), [of_logits(probes[FULL], states) for probes in read_probes(path)]
    delta = pl.read_parquet(finished / "results/delta/tiny/one.parquet").filter(
        component="mlp", position="final", intervention=EXACT
    )
    ids = [key["id"] for key in reader.keys]
    for (repeat, layer), rows in delta.group_by("repeat", "layer"):
        known = {row["id"]: row for row in rows.iter_rows(named=True)}
        logits = []
        for index, name in enumerate(ids):
            at = (repeat, layer, known[name]["fold"])
            logits.append(clean[layer, index] @ kept.weight["full"][at] + kept.bias["full"][at])
        assert_same(logits, [known[name]["logit_clean_full"] for name in ids], roundings[repeat])


def test_what_holds_no_probes_is_one_sentence(finished, tmp_path):
    with pytest.raises(
        ValueError, match=r"summary\.csv is not a Parquet file; name a file of probes, such as results/"
    ):
        api.load_probes(finished / "results/summary.csv")
    with pytest.raises(ValueError, match=r"delta/tiny/one\.parquet is no file of probes: it has no probe, strength"):
        api.load_probes(finished / "results/delta/tiny/one.parquet")
    write_probed([tmp_path / "none.parquet"], TooFew("7 right answers are too few."), {})
    with pytest.raises(ValueError, match=r"7 right answers are too few\."):
        api.load_probes(tmp_path / "none.parquet")


def test_what_never_ends_is_not_read():
    with pytest.raises(ValueError, match="/dev/zero is not a plain file but a fifo, socket or device; name a summary"):
        api.load_summary("/dev/zero")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"activations": []}, r"activations is \[\]; it must be a folder that `extract` wrote, or a list of them"),
        ({"folds": 1}, "folds is 1; it must be a whole number from 3 to 20"),
        ({"bootstrap_draws": 0}, "bootstrap_draws is 0; it must be a whole number of at least 100"),
        ({"model": None}, "model is None; it must be a name"),
    ],
)
def test_a_mistake_in_what_is_summarised_is_one_sentence(given, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        api.summarise(**{"activations": tmp_path} | given)


def test_a_folder_that_is_named_twice_does_not_count_twice(finished):
    folder = finished / "results/activations/tiny/one/0000"
    with pytest.raises(ValueError, match="named twice"):
        api.summarise([folder, f"{folder.parent}/../one/0000"])


def test_figures_take_styles_as_matplotlib_does(finished):
    summary = api.load_summary(finished / "results/summary.parquet")
    behind = {name: api.plot_family(summary, **given).axes[0].get_facecolor() for name, given in STYLES.items()}
    assert behind["ggplot"] == to_rgba(matplotlib.style.library["ggplot"]["axes.facecolor"]) != behind["bundled"]
    with matplotlib.style.context({"axes.facecolor": "#123456"}):
        assert api.plot_family(summary).axes[0].get_facecolor() == to_rgba("#123456")
        assert api.plot_family(summary, style=read_style()).axes[0].get_facecolor() == behind["bundled"]
    with pytest.raises(ValueError, match="gplot does not exist, and matplotlib has no style of that name"):
        api.plot_family(summary, style="gplot")


def test_importing_the_package_loads_no_library():
    """A GPU node has no polars and no matplotlib, a drawing job no torch."""
    libraries = "('torch', 'polars', 'matplotlib')"
    code = f"import sys; from anchorscope import api; print([name for name in {libraries} if name in sys.modules])"
    for line, loaded in (
        (code, "[]"),
        (code.replace("print", "api.plot_family; print"), "['polars', 'matplotlib']"),
    ):
        done = subprocess.run([sys.executable, "-c", line], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == loaded
    assert set(api.__all__) <= set(dir(api))
