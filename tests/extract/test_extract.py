"""Extraction equals the plain reference, family by family."""

from collections import defaultdict
from itertools import accumulate, product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from anchorscope.answer.answers import answer_ends, answer_questions, stop_tokens
from anchorscope.answer.prompts import encode
from anchorscope.engine.door import Engine
from anchorscope.engine.packs import find_openings
from anchorscope.engine.work import beginning, shared_tokens
from anchorscope.extract import store
from anchorscope.extract.axes import (
    COMPONENTS,
    EXACT,
    FULL_GRID,
    HEADLINE,
    PASSES,
    POSITIONS,
    Grid,
    knockouts_of,
    passes_of,
    window_of,
)
from anchorscope.extract.job import run_workload
from anchorscope.extract.sequences import Workload, build_workload
from anchorscope.extract.store import (
    ActivationReader,
    ActivationWriter,
    check_states_finite,
    column,
    grid_of,
    remove_added,
)
from engines import greedy
from few_examples import ALIKE, QUESTIONS, examples, longest, prompts
from reference import plain_greedy, plain_states, plain_sureness
from rounding import assert_same, of_a_pass, of_sureness
from small_things import FAMILIES, tiny_model

# Of the others Gemma 3 has the sliding windows, and the norms of queries and keys.
IN_EVERY_RUN = ("llama", "gemma2", "gemma3")


@pytest.fixture(
    scope="module",
    params=[name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES],
)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def ends(tokenizer) -> list[int]:
    return answer_ends(tokenizer)


def extract(folder: Path, model, tokenizer, *, knockout: str = EXACT, batch_tokens: int = 4096, rows=None) -> Workload:
    """Write a knockout's activations to a folder."""
    workload = build_workload(tokenizer, prompts(), rows or examples(tokenizer), passes=passes_of(knockout))
    shape = {"layers": model.config.num_hidden_layers, "width": 32, "dtype": torch.float32}
    with ActivationWriter(folder, **shape, made_from={}, knockout=knockout) as writer:
        run_workload(Engine(model, batch_tokens), workload, writer)
    return workload


@pytest.mark.parametrize(
    ("batch_tokens", "knockout"),
    [
        pytest.param(64, EXACT, marks=pytest.mark.slow),
        (4096, EXACT),
        pytest.param(256, "subject", marks=pytest.mark.slow),
        pytest.param(4096, "property", marks=pytest.mark.slow),
        pytest.param(256, "content", marks=pytest.mark.slow),
        pytest.param(4096, "whole_question", marks=pytest.mark.slow),
        pytest.param(4096, "exact_question_w1", marks=pytest.mark.slow),
        pytest.param(256, "exact_question_w3", marks=pytest.mark.slow),
        pytest.param(4096, "exact_question_w9", marks=pytest.mark.slow),
    ],
)
def test_stored_activations_equal_the_plain_reference(family, batch_tokens, knockout, tokenizer, tmp_path):
    rows = examples(tokenizer)
    workload = stored_as_in_the_reference(family, tokenizer, tmp_path, rows, knockout, batch_tokens)
    shared = shared_tokens([beginning(item[:1]).tolist() for item in workload.sequences])
    assert shared > 20, "the shared prefix is what this test is about"
    if knockout == EXACT:
        assert any(min(item[2].cut) < shared for item in workload.sequences), "no control reaches back"


@pytest.mark.parametrize(
    ("alike", "knockout"),
    [
        ("llama", "whole_question"),
        ("gemma3", "exact_question_w3"),  # with windows of its own
        *(
            pytest.param(*some, marks=pytest.mark.slow)
            for some in (
                *(("llama", EXACT), ("llama", "exact_question_w3")),
                *(("gemma3", EXACT), ("gemma3", "whole_question")),
            )
        ),
    ],
)
def test_what_questions_begin_with_alike_is_computed_once_and_changes_nothing(alike, knockout, tokenizer, tmp_path):
    rows = examples(tokenizer, ALIKE)
    workload = stored_as_in_the_reference(alike, tokenizer, tmp_path, rows, knockout, batch_tokens=4096)
    assert find_openings([tuple(beginning(item[:1])) for item in workload.sequences], most=99)


def stored_as_in_the_reference(
    family: str, tokenizer, folder: Path, rows, knockout: str, batch_tokens: int
) -> Workload:
    """Extract the examples, compare every vector with a plain run, and return what was run."""
    fast = tiny_model(family, len(tokenizer))
    slow = tiny_model(family, len(tokenizer), attention="eager")
    extract(folder / "a", fast, tokenizer, rows=rows)
    workload = extract(folder / "a", fast, tokenizer, knockout=knockout, batch_tokens=batch_tokens, rows=rows)
    reader = ActivationReader([folder / "a"])
    order = {key["id"]: index for index, key in enumerate(reader.keys)}
    window = window_of(knockout)
    read = {
        (run, *place): reader.read(*place, *run, layers=range(4))
        for run in workload.passes
        for place in product(COMPONENTS, POSITIONS)
    }
    stored, plain = defaultdict(list), defaultdict(list)
    for example, passes in zip(rows.to_pylist(), workload.sequences, strict=True):
        for run, sequence in zip(workload.passes, passes, strict=True):
            for layer in range(4):
                expected = plain_states(
                    slow, sequence.ids.tolist(), cut=sequence.cut, keep=sequence.read, layer=layer, window=window
                )
                for component in COMPONENTS:
                    for place, position in enumerate(POSITIONS):
                        stored[component].append(read[run, component, position][layer, order[example["id"]]])
                        plain[component].append(expected[component][place])
    for component in COMPONENTS:
        found, expected = torch.stack(stored[component]), torch.stack(plain[component])
        assert_same(found, expected, of_a_pass(slow, longest(workload), expected))
    return workload


def test_the_kept_positions_are_the_ones_that_the_method_names(tokenizer):
    rows = examples(tokenizer).to_pylist()
    rows[0] |= {"exact_first": 0, "exact_last": 0}
    built = build_workload(tokenizer, prompts(), pa.Table.from_pylist(rows)).sequences
    for example, passes in zip(rows, built, strict=True):
        for (prompt, _), sequence in zip(PASSES, passes, strict=True):
            (encoded,) = encode(tokenizer, prompts()[prompt], [example["question"]])
            whole = encoded.ids + example["generated_ids"]
            answer_last, final, before_answer = sequence.read
            assert whole[answer_last] == example["generated_ids"][example["exact_last"]]
            assert whole[final + 1] == 198, "the newline follows the answer's text"
            assert whole[before_answer + 1] == example["generated_ids"][example["exact_first"]]
            assert sequence.ids.tolist() == whole[: len(sequence.ids)]
    assert built[0][0].read[2] == len(encode(tokenizer, prompts()["first"], [rows[0]["question"]])[0].ids) - 1


def test_the_knockout_changes_every_stored_layer(tokenizer, tmp_path):
    """Guards the test above: clean and knocked-out references must differ for equality to mean anything."""
    slow = tiny_model("llama", len(tokenizer), attention="eager")
    built = build_workload(tokenizer, prompts(), examples(tokenizer)).sequences
    clean, cut = built[0][0], built[0][1]
    for layer in range(4):
        before = plain_states(slow, clean.ids.tolist(), cut=[], keep=clean.read, layer=layer)["resid"]
        after = plain_states(slow, cut.ids.tolist(), cut=cut.cut, keep=cut.read, layer=layer)["resid"]
        assert (before - after).abs().max() > 10 * of_a_pass(slow, len(clean.ids), before)


@pytest.mark.parametrize("questions", [QUESTIONS, ALIKE], ids=["different", "alike"])
def test_generation_equals_greedy_decoding_one_token_at_a_time(family, questions, tokenizer, ends):
    model = tiny_model(family, len(tokenizer))
    stops = stop_tokens(model, ends)
    stops[torch.arange(0, len(stops), 3)] = True  # so that rows stop at different times
    encoded = encode(tokenizer, prompts()["first"], questions)
    ids = [item.ids for item in encoded]
    answers = greedy(model, ids, stops, 12, batch_tokens=96)
    assert [said.ids for said in answers] == [plain_greedy(model, prompt, stops, limit=12) for prompt in ids]
    assert len({len(said.ids) for said in answers}) > 1
    rounding = of_sureness(model, max(map(len, ids)) + 12)
    for prompt, said in zip(ids, answers, strict=True):
        sure = plain_sureness(model, prompt, said.ids)
        assert_same([said.logprobs, said.entropies], sure, rounding)


def test_stop_tokens_are_newlines_and_ends_of_text(tokenizer, ends):
    model = tiny_model("llama", len(tokenizer), layers=1)
    stops = stop_tokens(model, ends)
    for text, expected in (("\n", True), ("\n\n", True), (" Paris", False), (" ", False)):
        (token,) = tokenizer(text)["input_ids"]
        assert bool(stops[token]) is expected, text
    assert stops[tokenizer.eos_token_id]


def test_answers_keep_the_generated_ids_and_point_into_them(tokenizer, ends):
    model = tiny_model("llama", len(tokenizer))
    questions = [
        {"id": str(i), "question": text, "gold": ["x"], "subject": None, "popularity": None, "spans": []}
        for i, text in enumerate(QUESTIONS)
    ]
    table = answer_questions(
        Engine(model, 4096), tokenizer, prompts()["first"], questions=questions, max_new_tokens=16
    ).to_pylist()
    encoded = encode(tokenizer, prompts()["first"], QUESTIONS)
    stops = stop_tokens(model, ends)
    for row, item in zip(table, encoded, strict=True):
        assert row["generated_ids"] == plain_greedy(model, item.ids, stops, limit=16)
        if not row["refused"]:
            exact = row["generated_ids"][row["exact_first"] : row["exact_last"] + 1]
            assert row["exact_answer"] in tokenizer.decode(exact)
            assert row["exact_first"] <= row["exact_last"] <= row["answer_final"]


def test_a_batch_of_no_examples_writes_a_file_of_no_rows(tokenizer, tmp_path):
    model = tiny_model("llama", len(tokenizer), layers=1)
    writer = ActivationWriter(tmp_path / "a", layers=1, width=32, dtype=torch.float32, made_from={})
    workload = build_workload(tokenizer, prompts(), examples(tokenizer).slice(0, 0))
    run_workload(Engine(model, 4096), workload, writer)
    writer.close()
    files = sorted((tmp_path / "a").iterdir())
    assert len(files) == 9
    assert {pq.read_metadata(file).num_rows for file in files} == {0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_vectors_come_back_bit_for_bit_in_the_order_of_ids(dtype, tmp_path):
    shape = (len(COMPONENTS), 2, len(PASSES), len(POSITIONS), 3, 5)
    blocks = [torch.randn(shape).to(dtype) for _ in range(2)]
    for number, (block, ids) in enumerate(zip(blocks, (["c", "a", "e"], ["b", "f", "d"]), strict=True)):
        writer = ActivationWriter(tmp_path / str(number), layers=2, width=5, dtype=dtype, made_from={})
        writer.add([{"id": name, "right": True, "subject": None, "popularity": 1} for name in ids], block)
        writer.close()
    reader = ActivationReader([tmp_path / "0", tmp_path / "1"])
    assert [key["id"] for key in reader.keys] == list("abcdef")
    together = torch.cat(blocks, dim=4)[:, :, :, :, [1, 3, 0, 5, 2, 4]]
    for c, component in enumerate(COMPONENTS):
        for r, run in enumerate(PASSES):
            for p, position in enumerate(POSITIONS):
                read = reader.read(component, position, *run, layers=range(2))
                assert read.dtype == dtype
                assert torch.equal(read, together[c, :, r, p])


def test_blocks_of_any_size_fill_row_groups_of_one_size(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "GROUP_BYTES", 0)  # so that a group holds the least number of examples
    sizes = [5, 40, 1, 16, 9]
    blocks = [torch.randn(len(COMPONENTS), 1, len(PASSES), len(POSITIONS), size, 3) for size in sizes]
    keys = [{"id": f"{i:02d}", "right": True, "subject": None, "popularity": None} for i in range(sum(sizes))]
    with ActivationWriter(tmp_path / "a", layers=1, width=3, dtype=torch.float32, made_from={}) as writer:
        for block, end in zip(blocks, accumulate(sizes), strict=True):
            writer.add(keys[end - block.shape[-2] : end], block)
    footer = pq.read_metadata(tmp_path / "a/attn.final.parquet")
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [16, 16, 16, 16, 7]
    read = ActivationReader([tmp_path / "a"]).read(
        "attn", "final", prompt="first", intervention="exact_question", layers=range(1)
    )
    assert torch.equal(read, torch.cat(blocks, dim=-2)[1, :, 1, 1])


ATTENTION_TWICE = Grid(("attn",), ("answer_last", "before_answer"))


@pytest.mark.parametrize("grid", [HEADLINE, ATTENTION_TWICE], ids=["headline", "attention at two positions"])
def test_a_part_of_the_grid_holds_what_the_whole_grid_holds_of_it(grid, tokenizer, tmp_path):
    model, rows = tiny_model("llama", len(tokenizer)), examples(tokenizer)
    for name, kept in (("whole", FULL_GRID), ("part", grid)):
        with ActivationWriter(
            tmp_path / name, layers=4, width=32, dtype=torch.float32, made_from={}, grid=kept
        ) as writer:
            workload = build_workload(tokenizer, prompts(), rows, positions=kept.positions)
            run_workload(Engine(model, 4096), workload, writer)
    assert grid_of(tmp_path / "part") == grid
    whole, part = (ActivationReader([tmp_path / name]) for name in ("whole", "part"))
    for place in grid.places():
        for run in PASSES:
            found, expected = (reader.read(*place, *run, layers=range(4)) for reader in (part, whole))
            assert_same(found, expected, of_a_pass(model, longest(workload), expected))
    with pytest.raises(ValueError, match=r"mlp at final was not kept; these activations are of "):
        part.read("mlp", "final", *PASSES[0], layers=range(1))


def test_a_later_extraction_leaves_nothing_of_an_earlier_one_that_kept_more(tmp_path):
    for grid in (FULL_GRID, HEADLINE):
        ActivationWriter(tmp_path / "a", layers=1, width=4, dtype=torch.float32, made_from={}, grid=grid).close()
    assert grid_of(tmp_path / "a") == HEADLINE


def test_a_failed_extraction_leaves_no_file(tmp_path):
    with (
        pytest.raises(RuntimeError),
        ActivationWriter(tmp_path / "a", layers=1, width=4, dtype=torch.float32, made_from={}),
    ):
        raise RuntimeError
    assert list((tmp_path / "a").iterdir()) == []
    with pytest.raises(FileNotFoundError, match="holds no activations"):
        ActivationReader([tmp_path / "a"])


def test_shards_of_different_dtypes_are_refused_by_name(tmp_path):
    for name, dtype in (("a", torch.float32), ("b", torch.bfloat16)):
        ActivationWriter(tmp_path / name, layers=1, width=4, dtype=dtype, made_from={}).close()
    with pytest.raises(ValueError, match=r"b/resid.* holds .* 1, 4, bfloat16, but .*a/resid.* 1, 4, float32"):
        ActivationReader([tmp_path / "a", tmp_path / "b"])


def write_vectors(folder: Path, ids: str, knockout: str = EXACT) -> torch.Tensor:
    """Random vectors of examples with these ids, in this order, as a knockout's files; returned in the order of ids."""
    block = torch.randn(len(COMPONENTS), 2, len(passes_of(knockout)), len(POSITIONS), len(ids), 5)
    shape = {"layers": 2, "width": 5, "dtype": torch.float32}
    with ActivationWriter(folder, **shape, made_from={}, knockout=knockout) as writer:
        writer.add([{"id": name, "right": True, "subject": None, "popularity": 1, "cut": 1} for name in ids], block)
    return block[..., [ids.index(name) for name in sorted(ids)], :]


def test_an_added_knockout_has_files_of_its_own_and_leaves_the_others_alone(tmp_path):
    """Its batches may give the examples another order; they are read together all the same."""
    exact = write_vectors(tmp_path, "cab")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    whole, window = (write_vectors(tmp_path, "bca", name) for name in ("whole_question", "exact_question_w2"))
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before.items() < after.items()
    assert len(after) == 3 * len(before)
    reader = ActivationReader([tmp_path])
    assert reader.knockouts == knockouts_of(["whole_question"], [2])
    expected = {
        ("second", "clean"): exact[2, :, 3, 1],
        ("second", "whole_question"): whole[2, :, 2, 1],
        ("first", "random_whole_question"): whole[2, :, 1, 1],
        ("first", "exact_question_w2"): window[2, :, 0, 1],
    }
    found = reader.read_passes("mlp", "final", list(expected), layers=range(2))
    assert all(torch.equal(found[run], vectors) for run, vectors in expected.items())
    with pytest.raises(ValueError, match="random_whole_question was not run under the second prompt; these"):
        reader.read("mlp", "final", "second", "random_whole_question", layers=range(2))
    foreign = dict.fromkeys(("a.b.c.parquet", "resid.answer_last.mine.parquet", "resid.final.parquet.old"), b"mine")
    for name, content in foreign.items():
        (tmp_path / name).write_bytes(content)
    remove_added(tmp_path)
    for name, content in foreign.items():
        assert (tmp_path / name).read_bytes() == content, "what is not ours stays"
        (tmp_path / name).unlink()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_of_different_examples_are_not_read_together(tmp_path):
    write_vectors(tmp_path, "abc")
    write_vectors(tmp_path, "abd", "content")
    with pytest.raises(ValueError, match=r"answer_last\.content\.parquet and .* hold different examples"):
        ActivationReader([tmp_path])


def test_an_example_without_such_words_is_cut_by_nothing_and_says_so(tokenizer, tmp_path):
    model = tiny_model("llama", len(tokenizer), layers=1)
    extract(tmp_path / "a", model, tokenizer)
    workload = extract(tmp_path / "a", model, tokenizer, knockout="subject")
    reader = ActivationReader([tmp_path / "a"])
    named = [key["subject"] is not None for key in reader.keys]
    assert reader.cuts("subject").tolist() == named
    assert reader.cuts(EXACT).all()
    for prompt, intervention in passes_of("subject"):
        cut, clean = (reader.read("resid", "final", prompt, name, layers=range(1)) for name in (intervention, "clean"))
        rounding = of_a_pass(model, longest(workload), clean)  # the two passes stood in packs of different shape
        assert changed(cut, clean, rounding) == named, intervention
        cut[0, named.index(False), -1] += 10 * rounding
        assert changed(cut, clean, rounding) != named, "one number that is wrong by ten times the rounding"


def changed(cut: torch.Tensor, clean: torch.Tensor, rounding: float) -> list[bool]:
    """Which examples of states [1, examples, width] differ by more than the rounding."""
    return ((cut - clean).abs() > rounding).any(2)[0].tolist()


def test_the_store_reads_from_plain_pyarrow(tmp_path):
    block = torch.randn(len(COMPONENTS), 1, len(PASSES), len(POSITIONS), 2, 4)
    writer = ActivationWriter(tmp_path / "a", layers=1, width=4, dtype=torch.float32, made_from={})
    writer.add([{"id": name, "right": True, "subject": None, "popularity": None} for name in "ab"], block)
    writer.close()
    name = column("mlp", "final", prompt="second", intervention="exact_question", layer=0)
    cells = pq.read_table(tmp_path / "a/mlp.final.parquet", columns=[name])[name].to_pylist()
    assert torch.equal(torch.frombuffer(bytearray(b"".join(cells)), dtype=torch.float32), block[2, 0, 4, 1].flatten())


def test_a_non_finite_activation_is_named():
    block = torch.zeros(len(COMPONENTS), 3, len(PASSES), len(POSITIONS), 2, 4)
    block[1, 2, 1, 0, 1, 3] = torch.inf
    with pytest.raises(
        ValueError, match=r"example b .* layer 2, component attn, position answer_last, .*exact_question"
    ):
        check_states_finite([{"id": "a"}, {"id": "b"}], block, FULL_GRID)


def test_nothing_half_written_is_left_behind(tmp_path):
    from anchorscope.files.atomic import atomic

    def fail():
        with atomic(tmp_path / "out.txt") as target:
            Path(target).write_text("half", encoding="utf-8")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []
