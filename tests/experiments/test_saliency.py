"""Saliency is what autograd and finite differences say, for one example or many, and a run measures it by name."""

import shutil

import numpy as np
import polars as pl
import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from anchorscope.engine.attention_mask import own_attention
from anchorscope.engine.door import Engine
from anchorscope.engine.gradients import Gradients
from anchorscope.engine.parts import find_parts
from anchorscope.engine.work import Probes, Route, Verdicts, shared_tokens
from anchorscope.experiments.measure_saliency import build_routes, drawn, layers_read
from anchorscope.extract.axes import HEADLINE
from anchorscope.extract.store import ActivationReader
from anchorscope.probe.anchor_rules import FULL
from anchorscope.probe.examples import examples_of
from anchorscope.probe.kept import read_probes
from architectures import small_model
from described import columns
from few_examples import examples, prompts
from reference import plain_saliency
from rounding import assert_same, of_a_pass, of_logits
from small_run import base_config, jobs, snakemake, write_config
from small_things import tiny_model

READ = [0, 2]  # layers
WIDTH = 32


def some_probes(count: int) -> Probes:
    draw = torch.Generator().manual_seed(3)
    return Probes(
        torch.randn(len(READ), count, WIDTH, generator=draw) / 20, torch.randn(len(READ), count, generator=draw)
    )


def routes_of(tokenizer) -> list[Route]:
    return build_routes(tokenizer, prompts()["first"], examples(tokenizer), "answer_last")


def expected(model, routes: list[Route], probes: Probes) -> np.ndarray:
    """[layers, flows, examples] the slow way."""
    model.set_attn_implementation("eager")
    return np.array(
        [
            [
                [
                    plain_saliency(
                        model,
                        route.ids.tolist(),
                        start=route.start,
                        keys=route.keys[flow],
                        probe=(probes.weight[number, index], float(probes.bias[number, index])),
                        layer=layer,
                    )
                    for index, route in enumerate(routes)
                ]
                for flow in range(2)
            ]
            for number, layer in enumerate(READ)
        ]
    )


def rounding_of(model, routes: list[Route], flows: np.ndarray) -> float:
    """A flow comes from a pass forwards and one backwards, which adds up as many terms."""
    return 2 * of_a_pass(model, max(len(route.ids) for route in routes), torch.from_numpy(flows).float())


def gradients_of(model, prefix) -> Gradients:
    parts = find_parts(model)
    return Gradients(model, parts, {layer: parts.blocks[layer].module for layer in READ}, prefix)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])  # full, sliding and capped attention
def test_flows_are_what_autograd_says_of_the_models_own_weights(family, tokenizer):
    model = tiny_model(family, len(tokenizer), layers=3, attention="eager")
    routes = routes_of(tokenizer)
    assert len({route.start for route in routes}) > 1
    shared = shared_tokens([route.ids[: route.start].tolist() for route in routes])
    assert shared > 20
    probes = some_probes(len(routes))
    slow = expected(model, routes, probes)
    assert slow.min() > 0
    whole, _ = gradients_of(model, None).run(routes, probes)
    rounding = rounding_of(model, routes, slow)
    assert_same(whole, slow, rounding)
    for index, route in enumerate(routes):
        own = Probes(probes.weight[:, [index]], probes.bias[:, [index]])
        reused, _ = gradients_of(model, routes[0].ids[:shared]).run([route], own)
        assert_same(reused[..., 0], slow[..., index], rounding)


class Double(TorchFunctionMode):
    """Computes in double precision also where code asks for single."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        func = torch.Tensor.double if func is torch.Tensor.float else func
        args = [torch.float64 if some is torch.float32 else some for some in args]
        kwargs = {name: torch.float64 if some is torch.float32 else some for name, some in (kwargs or {}).items()}
        return func(*args, **kwargs)


@pytest.fixture
def all_double(double):
    with Double():
        yield


class Nudged(TorchFunctionMode):
    """Adds a little to one weight of one attention."""

    def __init__(self, layer: int, place: tuple[int, int, int], by: float):
        super().__init__()
        self.layer, self.place, self.by, self.met = layer, place, by, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func is F.softmax:
            if self.met == self.layer:
                made = made.clone()
                made[(0, *self.place)] += self.by
            self.met += 1
        return made


@pytest.mark.usefixtures("all_double")
def test_flows_are_what_the_loss_does_when_a_weight_is_nudged():
    model = tiny_model("llama", 500, layers=3, attention="eager")
    ids = np.random.default_rng(0).integers(5, 500, 14)
    route = Route(ids, start=13, keys=[[4], [6]])  # one query, one key each
    probes, found = some_probes(1), {}
    model.get_decoder().layers[READ[1]].register_forward_hook(
        lambda module, args, output: found.update(state=output[0, -1])
    )

    def loss(layer: int, head: int, key: int, by: float) -> float:
        with Nudged(layer, (head, 13, key), by):
            model(input_ids=torch.from_numpy(ids)[None], use_cache=False)
        logit = float(found["state"] @ probes.weight[1, 0] + probes.bias[1, 0])
        return float(np.log1p(np.exp(-abs(logit))))

    def by_differences(key: int, step: float) -> float:
        both = [[[loss(layer, head, key, by) for by in (step, -step)] for head in range(4)] for layer in range(3)]
        slopes = torch.tensor(both).diff()[..., 0] / (2 * step)
        return float((weights[:, 0, :, 13, key] * slopes).abs().sum() / 3)

    weights = torch.stack(
        model(input_ids=torch.from_numpy(ids)[None], use_cache=False, output_attentions=True).attentions
    )
    values, states = gradients_of(model, ids[:3]).run([route], probes)
    # No loss moves farther than its logit, and a difference of two divides that by the step. It is off by a term that
    # grows with the step's square: by less than twice the step adds.
    step, moved = 1e-4, of_a_pass(model, len(ids), states) * float(probes.weight[1].abs().sum())
    for flow, key in enumerate((4, 6)):
        once, twice = (by_differences(key, some) for some in (step, 2 * step))
        rounding = abs(twice - once) + float(weights[:, 0, :, 13, key].sum()) / 3 * moved / step
        assert_same(values[1, flow], [once], rounding + rounding_of(model, [route], values[1].numpy()))


def test_nothing_flows_to_a_layer_before_any_attention():
    model = small_model("jamba")
    parts = find_parts(model)
    assert 0 in parts.without_attention
    route = Route(np.arange(5, 20), start=12, keys=[[7], [8]])
    probes = Probes(torch.ones(1, 1, model.config.hidden_size), torch.zeros(1, 1))
    with own_attention(model, "eager"):
        values, _ = Gradients(model, parts, {0: parts.blocks[0].module}, None).run([route], probes)
    assert values.shape == (1, 2, 1)
    assert not values.any()


def stored(model, routes: list[Route]) -> torch.Tensor:
    """The states that extraction would have kept, [layers, examples, width]."""
    with own_attention(model, "eager"):
        return gradients_of(model, None).run(routes, some_probes(len(routes)))[1]


@pytest.mark.parametrize(("family", "reused"), [("qwen3", True), ("mistral", False)])
def test_batches_of_mixed_lengths_say_what_single_examples_say(family, reused, tokenizer, caplog):
    """A gap in a row moves the edge of a sliding window; then nothing is reused."""
    model = tiny_model(family, len(tokenizer), layers=3)
    routes = routes_of(tokenizer)
    probes = some_probes(len(routes))
    measured = Verdicts(READ, probes, stored(model, routes), rounding=0.0)
    before = model.config._attn_implementation
    found = Engine(model, 200).flows(routes, measured, "resid", what="a test")
    assert model.config._attn_implementation == before, "the model is left as it was"
    slow = expected(model, routes, probes)
    assert_same(found, slow, rounding_of(model, routes, slow))
    assert any(record.levelname == "WARNING" for record in caplog.records) is not reused


def test_states_that_are_not_the_stored_ones_are_one_sentence(tokenizer):
    model = tiny_model("llama", len(tokenizer), layers=3)
    routes = routes_of(tokenizer)
    other = stored(tiny_model("llama", len(tokenizer), layers=3, seed=1), routes)
    measured = Verdicts(READ, some_probes(len(routes)), other, rounding=0.0)
    with pytest.raises(ValueError, match=r"^The states of the model are not those that were extracted \(.*\); extract"):
        Engine(model).flows(routes, measured, "resid", what="a test")


def test_routes_lead_from_the_words_that_are_cut_to_the_answer_up_to_the_token_that_is_read(tokenizer):
    rows = examples(tokenizer).to_pylist()
    for position, last in (("answer_last", "exact_last"), ("final", "answer_final")):
        for route, row in zip(
            build_routes(tokenizer, prompts()["first"], examples(tokenizer), position), rows, strict=True
        ):
            assert route.ids[route.start :].tolist() == row["generated_ids"][: row[last] + 1]
            exact, control = route.keys
            assert len(exact) == len(control) > 0
            assert not set(exact) & set(control)
            assert max(exact + control) < route.start
    before = build_routes(tokenizer, prompts()["first"], examples(tokenizer), "before_answer")
    assert [len(route.ids) - route.start for route in before] == [1] * len(rows)


def test_the_draw_is_balanced_seeded_and_bounded():
    ids, right = [f"q{n}" for n in range(90)], [n % 3 == 0 for n in range(90)]
    chosen = drawn(ids, right, seed=0, most=40)
    assert len(chosen) == len(set(chosen)) == 40
    assert sum(right[index] for index in chosen) == 20
    assert chosen == drawn(ids, right, seed=0, most=40) != drawn(ids, right, seed=1, most=40)
    assert len(drawn(ids, right, seed=0)) == 60, "all of the smaller class, and as many others"
    assert layers_read(30, reference=15) == [6, 14, 15, 21, 29]
    assert layers_read(2, reference=1) == [0, 1]


def test_the_probes_that_are_differentiated_say_what_the_delta_table_says(finished):
    folders = sorted((finished / "results/activations/tiny/one").iterdir())
    reader = ActivationReader(folders, HEADLINE, ["exact_question"])
    found = examples_of(reader.keys, folds=5, repeats=1, seed=0, where="here")
    folds = torch.from_numpy(found.splits[0].folds)
    clean = reader.read("resid", "answer_last", "first", "clean", layers=range(reader.layers))
    probes = read_probes(finished / "results/probes/tiny/one/resid.answer_last.parquet")[0][FULL]
    own = probes.logits(clean).gather(1, folds[None, None].expand(len(clean), 1, -1))[:, 0].sigmoid()
    delta = pl.read_parquet(finished / "results/delta/tiny/one.parquet").filter(
        component="resid", position="answer_last", intervention="exact_question", repeat=0
    )
    for layer in range(reader.layers):
        expected = dict(delta.filter(layer=layer).select("id", "p_clean").iter_rows())
        rounding = of_logits(probes, clean) / 4  # a chance moves by a quarter of its logit at most
        assert_same(own[layer], [expected[name] for name in found.ids], rounding)


@pytest.mark.slow
def test_a_run_measures_saliency_and_asks_again_where_the_config_names_them(finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder, symlinks=True)
    write_config(folder, base_config() | {"experiments": ["boundary", "saliency"]})
    planned = jobs(snakemake(folder, "--dry-run"))
    assert {name: planned[name] for name in ("ask_unsure", "saliency")} == {"ask_unsure": 4, "saliency": 2}
    assert not {"answer", "extract", "probe", "read_text", "estimate"} & set(planned)
    assert jobs(snakemake(folder, "salmon", "--dry-run"))["saliency"] == 4, "the salmon's too"
    table, again = "results/experiments/saliency/tiny/one.parquet", "results/unsure/tiny/one/0000.parquet"
    done = snakemake(folder, table, again)
    assert done.returncode == 0, done.stdout + done.stderr
    frame = pl.read_parquet(folder / table)
    assert columns("experiments/saliency/{model}/{dataset}.parquet") == frame.columns
    delta = pl.read_parquet(folder / "results/delta/tiny/one.parquet")
    assert set(frame["id"]) == set(delta["id"])
    assert set(frame["layer"]) == {0, 1}
    assert frame.group_by("id", "layer").agg(pl.col("keys").n_unique())["keys"].max() == 1
    assert frame["value"].min() >= 0
    assert frame.filter(pl.col("value") > 0).height > 0.9 * frame.height
    first, second = (pl.read_parquet(folder / name) for name in (again.replace("unsure", "answers"), again))
    assert set(columns("unsure/{model}/{dataset}/{shard}.parquet")) == set(second.columns)
    assert first["id"].equals(second["id"])
    assert not first["generated_ids"].equals(second["generated_ids"]), "another prompt was used"
    for said in (first, second):
        for name in ("logprobs", "entropies"):
            assert said[name].list.len().equals(said["generated_ids"].list.len())
