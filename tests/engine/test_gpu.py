"""The engine on a GPU: its own kernels, its memory, several devices. Skipped where there is no GPU."""

import copy
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from accelerate import dispatch_model

from anchorscope.detect.again import MarkedExample, reweighted_states
from anchorscope.detect.reweighting import GATES
from anchorscope.engine import steps
from anchorscope.engine.door import Engine
from anchorscope.engine.fused import HAS_TRITON
from anchorscope.engine.packing import Ragged
from anchorscope.engine.steps import Slots, Step
from anchorscope.extract.axes import FULL_GRID, HEADLINE, PASSES, Headline
from anchorscope.extract.job import run_workload
from anchorscope.extract.sequences import Workload
from anchorscope.extract.store import ActivationReader, ActivationWriter
from anchorscope.models.gpus import PARTS, give_back, take
from anchorscope.models.loading import leave_gpus
from anchorscope.probe.delta import measure_places
from anchorscope.probe.examples import examples_of
from anchorscope.probe.label_errors import labellings
from anchorscope.probe.scores import cross_fit_scores
from engines import check_fused, collected, continuations, engine_on, tried_engine
from few_examples import forest, longest
from measured import check_measured
from reference import plain_attention
from rounding import assert_same, of_a_pass, of_probes, of_sureness
from small_things import FAMILIES, tiny_model

if HAS_TRITON:
    from anchorscope.engine.kernels import attend_ragged, rotate

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
PREFIX = 40


PASSES_HERE = [("first", str(number)) for number in range(4)] + [("second", "clean")]


def workload(copies: int = 1) -> Workload:
    """Examples with four cuts under the first prompt and one pass under the second."""
    sequences = [item + item[:1] for item in forest(30, PREFIX)] * copies
    ids = [f"{number:05d}" for number in range(len(sequences))]
    keys = [{"id": name, "right": True, "subject": None, "popularity": None, "cut": 1} for name in ids]
    return Workload(keys, sequences, PASSES_HERE)


def states(model, name: str = "packed") -> torch.Tensor:
    """[components, layers, passes, positions, examples, width] on the CPU, in float32."""
    some, layers = workload(), model.config.num_hidden_layers
    work = some.work(FULL_GRID, layers, "exact_question")
    path = Engine(model).prepare(work)
    assert path.name == "packed"
    found = collected(engine_on(path, model, name, batch_tokens=10**6), work).float()
    return found.unflatten(2, (len(PASSES_HERE), 3, len(some.sequences)))


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_on_the_gpu_equals_the_cpu(family):
    model = tiny_model(family, 500)
    expected = states(model)
    for path in ("packed", "plain"):
        assert_same(states(model.cuda(), path), expected, of_a_pass(model, longest(workload()), expected))


@pytest.mark.parametrize(
    ("heads", "of_keys", "width", "softcap"),
    [(8, 2, 64, None), (6, 2, 128, 2.0), (3, 3, 80, None), (71, 1, 16, None), (2, 1, 256, None)],
)
def test_attention_to_ragged_sequences_is_that_of_a_plain_loop(heads, of_keys, width, softcap):
    """Sequences of one query and of many, with nothing before them and with much. Keys lie anywhere in the pool."""
    torch.manual_seed(0)
    queries, seen = torch.tensor([5, 1, 150, 33, 1]), torch.tensor([25, 1, 150, 200, 90])
    query = torch.randn(1, heads, int(queries.sum()), width).bfloat16()[0].transpose(0, 1)  # as models give it
    keys, values = torch.randn(2, 400, of_keys, width).bfloat16()
    places = torch.cat([torch.randperm(400)[:count] for count in seen.tolist()])
    ragged = Ragged(places, F.pad(queries.cumsum(0), (1, 0)), seen.cumsum(0) - seen, seen, int(queries.max()))
    given, scale = (query.cuda(), keys.cuda(), values.cuda(), ragged.to("cuda")), width**-0.5
    found = attend_ragged(*given, scale, softcap=softcap).cpu()
    expected = plain_attention(query, keys, values, ragged, scale, softcap)
    # Weights, and what they weigh, are rounded to bfloat16: each moves the sum by half a unit of the largest value.
    assert_same(found.float(), expected, torch.finfo(torch.bfloat16).eps * float(values.abs().max()))


@pytest.mark.parametrize("width", [64, 80])
def test_the_rotary_kernel_turns_pairs_of_numbers_half_a_width_apart(width):
    torch.manual_seed(0)
    states, (cos, sin) = torch.randn(1, 7, 5, width).transpose(1, 2), torch.randn(2, 1, 7, width)
    first, second = states.chunk(2, dim=-1)
    expected = states * cos[:, None] + torch.cat([-second, first], dim=-1) * sin[:, None]
    found = rotate(states.cuda().transpose(1, 2).contiguous().transpose(1, 2), cos.cuda(), sin.cuda()).cpu()
    assert_same(found, expected, 2 * torch.finfo(torch.float32).eps * float(expected.abs().max() + states.abs().max()))


@pytest.mark.parametrize(("softcap", "sliding"), [(None, None), (2.0, None), (None, 9), (2.0, 30)])
def test_a_step_in_bfloat16_attends_as_in_float32_on_the_cpu(softcap, sliding):
    """Answers of different lengths behind a prefix; the same keys and values, and those of the new tokens."""
    torch.manual_seed(0)
    rows, room, of_keys, width = 37, 16, 3, 64
    lengths = torch.randint(1, room, (rows,))
    known, own = (torch.randn(2, *shape).bfloat16() for shape in ((of_keys, 20, width), (rows, of_keys, room, width)))
    new = [torch.randn(rows, heads, width).bfloat16() for heads in (4 * of_keys, of_keys, of_keys)]
    found = []
    for device, dtype in (("cpu", torch.float32), ("cuda", torch.bfloat16)):
        slots = Slots({0: tuple(states.to(device, dtype) for states in known)}, rows, room)
        for mine, states in zip(slots.own[0], own, strict=True):
            mine.copy_(states)
        slots.lengths.copy_(lengths)
        slots.begin_step()
        given = [states.to(device, dtype) for states in new]
        found.append(slots.attend(0, given, 0.3, sliding=sliding, softcap=softcap).cpu())
    largest = max(float(states.abs().max()) for states in (known[1], own[1], new[2]))
    assert_same(found[1].float(), found[0], torch.finfo(torch.bfloat16).eps * largest)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_kernels_are_as_near_to_float32_as_the_cpu_is(family):
    """Two orders of summation in bfloat16: the GPU's kernels may not be further off than the CPU's, by half."""
    model = tiny_model(family, 500)
    exact = states(model)
    cpu = states(model.bfloat16())
    gpu = states(model.cuda())
    errors = [((found - exact).norm() / exact.norm()).item() for found in (cpu, gpu)]
    assert errors[0] > 1e-4
    assert errors[1] < 1.5 * errors[0]


def reweighted(model, name: str = "packed") -> torch.Tensor:
    """[1 + shifts, examples, width] on the CPU, in float32."""
    some = [
        MarkedExample(
            ids=item[0].ids,
            answer=PREFIX + 5,
            read=len(item[0].ids) - 1,
            exact_question=[PREFIX + 1, PREFIX + 3],
            exact_answer=[PREFIX + 6],
            question_last=PREFIX + 4,
        )
        for item in forest(30, PREFIX)
    ]
    gates = np.random.default_rng(0).random((len(some), len(GATES)))
    engine = tried_engine(model, some[-1].ids.tolist(), PREFIX, name)
    return reweighted_states(engine, Headline("resid", "answer_last"), some, gates).float()


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3"])  # plain, capped and sliding attention
def test_reweighted_attention_on_the_gpu_is_that_on_the_cpu(family):
    model = tiny_model(family, 500)
    exact = reweighted(model)
    for path in ("packed", "plain"):
        assert_same(reweighted(model.cuda(), path), exact, of_a_pass(model, longest(workload()), exact))
    half = reweighted(model.cpu().bfloat16())
    for path in ("packed", "plain"):
        errors = [((found - exact).norm() / exact.norm()).item() for found in (half, reweighted(model.cuda(), path))]
        assert errors[0] > 1e-4
        assert errors[1] < 1.5 * errors[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_fused_parts_compute_the_same_on_the_gpu(family):
    check_fused(tiny_model(family, 500).cuda(), gated=family in ("llama", "qwen3", "mistral"))


def continued_on_both(model, copies: int = 3, tokens: int = 48) -> None:
    """Greedy and drawn answers on the GPU are those on the CPU. Some end soon, and some need slots with more room."""
    prompts = [[*range(PREFIX), *item[0].ids[PREFIX:].tolist()] for item in workload().sequences]
    stops = torch.zeros(500, dtype=torch.bool)
    stops[::9] = True
    rounding = of_sureness(model, max(map(len, prompts)) + tokens)
    for uniforms in (None, torch.rand(len(prompts), copies, tokens, generator=torch.Generator().manual_seed(0))):
        expected, found = (
            [
                said
                for answers in continuations(one, prompts, stops.to(one.device), tokens, uniforms)
                for said in answers
            ]
            for one in (model.cpu(), copy.deepcopy(model).cuda())
        )
        assert uniforms is None or len({len(said.ids) for said in expected}) > 4
        assert [said.ids for said in found] == [said.ids for said in expected]
        for some, other in zip(found, expected, strict=True):
            assert_same([some.logprobs, some.entropies], [other.logprobs, other.entropies], rounding)


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_on_the_gpu_are_graphs_and_equal_those_on_the_cpu(family, monkeypatch):
    captured, capture = [], Step.capture
    monkeypatch.setattr(Step, "capture", lambda step, pool: captured.append(len(step.tokens)) or capture(step, pool))
    continued_on_both(tiny_model(family, 500))
    assert len(set(captured)) > 2


def test_graphs_whose_slots_are_not_kept_are_captured_again(monkeypatch):
    monkeypatch.setattr(steps, "SLOT_SHARE", 0.0)
    captured, capture = [], Step.capture
    monkeypatch.setattr(Step, "capture", lambda step, pool: captured.append(pool) or capture(step, pool))
    continued_on_both(tiny_model("llama", 500))
    assert len(set(captured)) > 2


def test_a_model_that_waits_for_the_gpu_answers_without_graphs(caplog):
    caplog.set_level("INFO")
    model = tiny_model("llama", 500)
    model.model.layers[1].mlp.register_forward_hook(lambda module, args, output: output.add_(output.sum().item() * 0))
    continued_on_both(model)
    assert "without graphs" in caplog.text
    del model
    torch.empty(2**30, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < 2**29, "memory is given back afterwards"
    torch.randn(3, device="cuda")


def test_a_model_on_two_devices_gives_the_same(tmp_path):
    model = tiny_model("llama", 500)
    expected = states(model)
    devices = {f"model.layers.{layer}": "cpu" if layer < 2 else 0 for layer in range(4)}
    devices |= {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": 0, "lm_head": 0}
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone(), requires_grad=False)  # untied
    dispatch_model(model, devices, main_device="cpu")
    assert {str(layer.mlp.up_proj.weight.device) for layer in model.model.layers} == {"cpu", "cuda:0"}
    assert_same(states(model), expected, of_a_pass(model, longest(workload()), expected))


def test_a_batch_too_large_for_the_gpu_is_halved(tmp_path, caplog):
    model = tiny_model("llama", 500, layers=2).cuda()
    work = workload(copies=40)
    total = torch.cuda.get_device_properties(0).total_memory
    read = []
    torch.cuda.empty_cache()
    for name, room in (("plenty", 1.0), ("little", (torch.cuda.memory_reserved() + 60e6) / total)):
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(room)
        with ActivationWriter(tmp_path / name, layers=2, width=32, dtype=torch.float32, made_from={}) as writer:
            run_workload(Engine(model, 10**6), work, writer)
        reader = ActivationReader([tmp_path / name])
        read.append([reader.read("resid", "final", *run, layers=range(2)) for run in PASSES])
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert "out of memory at" in caplog.text
    for some, other in zip(*read, strict=True):
        assert_same(some, other, of_a_pass(model, longest(work), some))


def test_the_gpu_is_free_and_empty_while_the_last_batch_is_still_written(tmp_path):
    model = tiny_model("llama", 500, layers=2).cuda()
    model.held = take(1)
    work = workload()
    left, seen = threading.Event(), []

    class Slow(ActivationWriter):
        def add(self, keys, block):
            seen.append(left.wait(60))
            super().add(keys, block)

    def computed() -> None:
        leave_gpus(model)
        seen.append(torch.cuda.memory_allocated())
        give_back(take(1))  # would wait for ever
        left.set()

    with Slow(tmp_path / "a", layers=2, width=32, dtype=torch.float32, made_from={}) as writer:
        run_workload(Engine(model, 10**6), work, writer, computed=computed)
    assert seen[1:] == [True]
    assert seen[0] < 2**27, "no more than the matrix library keeps for itself"
    assert len(ActivationReader([tmp_path / "a"]).keys) == len(work.keys)


def test_jobs_that_share_a_gpu_cannot_fill_one_anothers_parts():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    held = [take(1, needed=1e9) for _ in range(PARTS)]  # would wait for ever if one of them had more than a part
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(total // PARTS, dtype=torch.uint8, device="cuda")
    for one in held:
        give_back(one)
    whole = take(1)
    assert torch.empty(total // PARTS, dtype=torch.uint8, device="cuda").is_cuda
    give_back(whole)


def test_a_job_that_waits_for_a_gpu_has_nothing_on_it():
    """Apart from what the driver keeps for a process that has asked how many GPUs there are."""
    held = take(1)
    command = [sys.executable, "-c", "from anchorscope.models.gpus import take; print(*take(1))"]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    time.sleep(15)
    listed = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    using = subprocess.run(listed, capture_output=True, text=True).stdout.split()
    assert waiting.poll() is None, "it does not get the GPU that this process holds"
    assert str(waiting.pid) not in using
    give_back(held)
    assert waiting.communicate(timeout=60)[0].split() == ["0"]


def test_the_probe_stage_gives_the_same_on_the_gpu_and_on_the_cpu(tmp_path):
    generator = torch.Generator().manual_seed(0)
    count, layers, width = 120, 3, 20  # so narrow that distances are measured along all directions
    wrong = torch.arange(count) % 2
    block = torch.randn(1, layers, len(PASSES), 1, count, width, generator=generator)
    block[..., 0] += 1.5 * wrong
    keys = [{"id": f"{i:03d}", "right": not wrong[i], "subject": None, "popularity": None} for i in range(count)]
    shape = {"layers": layers, "width": width, "dtype": torch.float32}
    with ActivationWriter(tmp_path / "a", **shape, made_from={}, grid=HEADLINE) as writer:
        writer.add([{**key, "right": bool(key["right"])} for key in keys], block)
    reader, (place,) = ActivationReader([tmp_path / "a"]), HEADLINE.places()
    examples = examples_of(reader.keys, folds=5, repeats=3, seed=0, where="here")
    drawn = labellings(examples, seed=0)
    on_cpu, on_gpu = (
        measure_places(reader, examples, PASSES, on_gpu=there, errors={place: drawn})[place] for there in (False, True)
    )
    assert on_gpu.mislabelled.keys() == on_cpu.mislabelled.keys() != set()
    states = reader.read_passes(*place, passes=PASSES, layers=range(layers))
    check_measured(on_gpu, on_cpu, states, examples, drawn)  # tables are made from this without a GPU
    assert torch.cuda.memory_allocated() < 2**27


def test_probes_on_the_gpu_are_those_on_the_cpu():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 2
    clean = torch.randn(3, 200, 300, generator=generator)
    clean[:, :, 0] += 2.0 * labels
    passes = {run: clean + 0.3 * torch.randn(clean.shape, generator=generator) for run in PASSES}
    split = labels.bool(), torch.arange(200) // 2 % 5, torch.arange(200) // 10 % 2, torch.arange(200) // 5 % 2 == 0
    expected = cross_fit_scores(passes, *split)
    found = cross_fit_scores({run: part.cuda() for run, part in passes.items()}, *(part.cuda() for part in split))
    assert torch.equal(found.strengths, expected.strengths)
    train = split[1] != torch.arange(5)[:, None]
    for (probe, run), logits in expected.logits.items():
        seen = train if probe.half is None else train & (split[2] == probe.half)
        learnt = (passes[probe.prompt, "clean"], labels, seen, expected.strengths)
        rounding = of_probes(expected.probes[probe], *learnt, said_of=passes[probe.prompt, run])
        # A chance moves by at most a quarter of its logit.
        assert_same(found.logits[probe, run].sigmoid(), logits.sigmoid(), rounding / 4)
