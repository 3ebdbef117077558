"""What identifies a model changes with the model, and with nothing else."""

import os

from anchorscope.models.manifest import identity_of, source_of


def test_the_source_leaves_out_what_says_nothing_about_where_a_model_is_from():
    model = {"title": "Mine", "hub": "me/mine", "revision": "0" * 40, "dtype": "float32", "gpus": 1}
    assert source_of(model) == {"hub": "me/mine", "revision": "0" * 40}
    assert identity_of(source_of(model)) == identity_of({"revision": "0" * 40, "hub": "me/mine"})
    assert identity_of(source_of(model)) != identity_of({"hub": "me/mine", "revision": "1" * 40})


def test_the_dtype_matters_to_what_is_unpacked_and_only_where_half_the_room_will_do():
    packed, whole = {"path": "/mine.gguf"}, {"path": "/mine"}
    for dtype in ("bfloat16", "float16"):
        assert source_of({**packed, "dtype": dtype}) == {**packed, "dtype": dtype}
        assert source_of({**whole, "dtype": dtype}) == whole
    for dtype in ("float32", "auto"):
        assert source_of({**packed, "dtype": dtype}) == packed


def test_random_weights_are_known_by_their_files_contents_and_their_seed(tmp_path):
    def identity(folder: str, text: str, seed: int = 0) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "config.json").write_text(text)
        (tmp_path / folder / "tokenizer.json").write_text("{}")
        return identity_of({"random": {"config": str(tmp_path / folder / "config.json"), "seed": seed}})

    assert identity("here", "{}") == identity("there", "{}")
    assert len({identity("here", "{}"), identity("here", '{"a": 1}'), identity("here", "{}", seed=1)}) == 3


def test_a_folder_or_file_that_was_replaced_is_another_model(tmp_path):
    weights = tmp_path / "model.gguf"
    weights.write_bytes(b"one")
    for source in ({"path": str(tmp_path)}, {"path": str(weights)}):
        weights.write_bytes(b"one")
        os.utime(weights, ns=(0, 0))
        before = identity_of(source)
        assert identity_of(source) == before
        weights.write_bytes(b"two")
        os.utime(weights, ns=(1, 1))
        assert identity_of(source) != before
