"""Whatever lines are scored: each comes back with a probability, or one sentence says which line cannot."""

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st

from anchorscope.detect.detector_file import write_detector
from anchorscope.detect.score_file import score_file
from anchorscope.models.describe import describe
from mutations import changed, check_refusal, spoilt, sweep, write
from planted_detector import LAYERS, SHOTS, about, probes
from rounding import assert_same, of_a_score
from small_things import small_tokenizer, tiny_model

SUFFIXES = (".jsonl",)  # the formats that the command reads
SETTINGS = {"dtype": "float32", "threads": 1, "batch_tokens": None}
SEVERAL_LETTERS = ["e\u0301\u0323", "\u1112\u1161\u11ab", "👩‍👩‍👧‍👦", "🇫🇷🏳️‍🌈", "❤️", "ﷺ", "ß", "İ"]
STRANGE = [
    *("", " ", "\n", "\r\n", "\u2028", "\x85", "\x0b", "\0", "\x1b[31mred", "\x7f", "\ufeff", "\u200b", "\u00ad"),
    *("שלום עולם", "مرحبا", "\u202eevil\u202c", "\u2066x\u2069", "東京", "\U0010ffff", "\ue000", "\ufffd", "\ud800"),
    *("</s>", "<s>", "I don't know.", "?!", "...", "NaN", "null", '"', '""', "\\", "\\u0000", "{}", "Answer:"),
    *("why " * 100, "x" * 5000, "é" * 4000, "\u0301" * 300, "a\nb" * 200),
]
TEXTS = st.lists(
    st.sampled_from(STRANGE) | st.sampled_from(SEVERAL_LETTERS) | st.text(max_size=12) | st.just("Jane Austen"),
    min_size=1,
    max_size=3,
).map("".join)
ROW = {"question": "who wrote emma", "answer": "Jane Austen", "id": 7, "more": {"of": ["this", None, True, 1.5]}}
ASKED = st.fixed_dictionaries({"question": TEXTS, "answer": TEXTS})
ROWS = st.one_of(
    ASKED,
    ASKED,
    st.fixed_dictionaries({"question": TEXTS, "answer": TEXTS, "id": TEXTS}),
    ASKED.map(lambda row: row | {"hallucinated": None}),
    changed(ROW),
)
DEEP = '{"question": "who", "answer": "me", "n": ' + "[" * 100_000 + "]" * 100_000 + "}"
LINES = [
    *(DEEP, "[]", "null", "3", '"text"', "{", "{}", "{'question': 'who'}", "NaN", "\ufeff", '{"question"}'),
    '{"question": "who", "answer": "me", "n": 1e999}',
    '{"question": "who", "answer": "me", "n": -Infinity}',
    '{"question": "who", "answer": "me", "n": ' + "9" * 5000 + "}",
    '{"question": "who", "answer": "me", "answer": "you"}',
    '{"question": "who", "answer": "\\ud800"}',
    '{"question": "who", "answer": "me", "n": 0.10000000000000000001, "m": 12345678901234567890}',
]


def as_bytes(rows: list, suffix: str, escaped: bool) -> bytes:
    """The rows as a file of that format, with letters as they are or escaped."""
    assert suffix == ".jsonl"
    lines = [json.dumps(row, ensure_ascii=escaped) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def plain_rows(file: Path) -> list[dict]:
    """The rows as the plainest reader of the format sees them."""
    return [json.loads(line) for line in file.read_bytes().decode("utf-8-sig").split("\n") if line.strip()]


def any_file(suffix: str) -> st.SearchStrategy[bytes]:
    """Rows of any kind; now and then in another encoding, with other ends of lines, with a line as it is, or spoilt."""
    drawn = st.tuples(st.lists(ROWS, max_size=2), st.booleans())
    rows = drawn.map(lambda both: as_bytes([ROW, *both[0]], suffix, escaped=both[1]))
    raw = st.tuples(rows, st.sampled_from(LINES)).map(lambda both: both[0] + both[1].encode())
    return st.one_of(
        rows,
        rows,
        rows,
        raw,
        rows.flatmap(spoilt),
        rows.map(lambda data: b"\xef\xbb\xbf" + data),
        rows.map(lambda data: data.replace(b"\n", b"\r\n")),
        st.just(b"") | rows.map(lambda data: data.decode(errors="replace").encode("utf-16")),
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, Path]:
    """A small random model and a detector for it."""
    folder = tmp_path_factory.mktemp("score")
    tokenizer = small_tokenizer()
    tiny_model("llama", len(tokenizer), layers=LAYERS).save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    described = describe(folder / "tiny", name="tiny", source={})
    write_detector(folder / "tiny.safetensors", probes(), about(described.tokenizer), {})
    return folder / "tiny", folder / "tiny.safetensors"


@cache
def rounding_of(tokens: int) -> float:
    """Of a score after so many tokens, with states as large as those of all tokens after each other."""
    vocabulary = len(small_tokenizer())
    model, layer = tiny_model("llama", vocabulary, layers=LAYERS), about("").layer
    with torch.inference_mode():
        states = model(torch.arange(vocabulary)[None], output_hidden_states=True).hidden_states[layer + 1][0]
    return of_a_score(model, tokens, probes(), layer, states)


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("cases", [10, pytest.param(2000, marks=pytest.mark.slow)])
def test_any_line_is_scored_or_refused_in_a_sentence(cases, suffix, files, tmp_path):
    model, detector = files
    file, target = tmp_path / f"mine{suffix}", tmp_path / "scores.jsonl"
    known: dict[tuple[str, str], float | None] = {}

    def judge(data: bytes) -> bool:
        write(file, data)
        target.unlink(missing_ok=True)
        try:
            score_file(str(file), detector, model, target=target, **SETTINGS)
        except Exception as error:
            check_refusal(error, (str(file), "question", "answer"))
            assert not target.exists()
            return False
        found = [json.loads(line, parse_constant=refuse) for line in target.read_bytes().decode().split("\n")[:-1]]
        scores = [row.pop("hallucinated") for row in found]
        assert found == plain_rows(file)
        for row, score in zip(found, scores, strict=True):
            assert score is None or 0 <= score <= 1
            before = known.setdefault((row["question"], row["answer"]), score)
            if score != before:
                text = json.dumps([SHOTS, row["question"], row["answer"]])  # longer than the prompt in tokens
                assert_same([score], [before], rounding_of(len(text)))
        return True

    found = sweep(cases, any_file(suffix), judge)
    assert min(found["accepted"], found["refused"]) > cases / 20
