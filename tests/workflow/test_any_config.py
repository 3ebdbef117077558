"""Whatever a config holds: it can be planned, or each mistake in it is one sentence; never a traceback."""

import copy
import os
import subprocess
import sys

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchorscope.config_checks import mistakes
from small_things import ROOT

SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text())
BASES = [yaml.safe_load((ROOT / name).read_text()) for name in ("config.yaml", "config/paper.yaml")]
WORDS = [
    "",
    ".",
    "..",
    "../x",
    "/etc/passwd",
    "a b",
    "x\ny",
    "0",
    "null",
    "flip",
    "hub",
    "file",
    "bundled",
    "é",
    "-x",
    "a/b",
]
# What YAML can hold: infinities and NaN, keys that are not strings, strings with a meaning in a shell or a path.
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(),
    st.sampled_from(WORDS),
    st.text(max_size=8),
)
KEYS = st.one_of(st.sampled_from([*WORDS, "models", "title", "path", "revision"]), st.integers(-3, 3), st.booleans())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


def places(node: object, path: tuple = ()) -> list[tuple]:
    """Every place in a config, as the keys that lead there."""
    found = [path] if path else []
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else []
    for key, child in children:
        found += places(child, (*path, key))
    return found


@st.composite
def configs(draw: st.DrawFn) -> dict:
    """A config that can be run, changed in up to three places."""
    config = copy.deepcopy(draw(st.sampled_from(BASES)))
    for _ in range(draw(st.integers(0, 3))):
        *parents, last = draw(st.sampled_from(places(config)))
        target = config
        for key in parents:
            target = target[key]
        change = draw(st.sampled_from(["set", "remove", "add", "rename"]))
        if change == "set":
            target[last] = draw(VALUES)
        elif change == "add" and isinstance(target, dict):
            target[draw(KEYS)] = draw(VALUES)
        elif change == "rename" and isinstance(target, dict):
            target[draw(KEYS)] = target.pop(last)
        else:
            del target[last]
    return config


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(configs())
def test_every_mistake_is_one_sentence(config):
    for sentence in mistakes(config, SCHEMA):
        assert "\n" not in sentence
        assert len(sentence) < 600
        assert sentence.rstrip().endswith((".", "?"))


def dry_run(config: dict, folder) -> subprocess.CompletedProcess:
    folder.mkdir()
    (folder / "some.yaml").write_text(yaml.safe_dump(config, allow_unicode=True))
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--dry-run",
        "--cores",
        "1",
        "--configfile",
        str(folder / "some.yaml"),
    ]
    return subprocess.run(
        [*command, "--directory", str(folder)], cwd=ROOT, capture_output=True, text=True, env={**os.environ}
    )


@pytest.mark.slow
def test_what_has_no_mistake_can_be_planned_and_the_rest_is_refused_without_a_traceback(tmp_path):
    """The same configs before a real Snakemake, a few of each kind."""
    seen: dict[bool, list[dict]] = {True: [], False: []}

    @settings(max_examples=400, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(configs())
    def collect(config):
        kind = not mistakes(config, SCHEMA)
        if config not in BASES and len(seen[kind]) < 8:
            seen[kind].append(config)

    collect()
    for valid, some in seen.items():
        assert len(some) == 8
        for number, config in enumerate(some):
            done = dry_run(config, tmp_path / f"{valid}-{number}")
            said = done.stdout + done.stderr
            assert (done.returncode == 0) == valid, said[-2000:]
            assert "Traceback" not in said
            assert valid or "The config cannot be run:" in said


@pytest.mark.parametrize("name", ["..", "../up", "a/b", "/abs", ".hidden", "-rf", "a b", ""])
@pytest.mark.parametrize("kind", ["models", "datasets", "figures"])
def test_a_name_that_would_leave_the_results_folder_is_refused(kind, name):
    config = copy.deepcopy(BASES[0])
    config[kind][name] = next(iter(config[kind].values()))
    (sentence,) = mistakes(config, SCHEMA)
    assert "becomes part of file names" in sentence
