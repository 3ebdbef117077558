"""A stage's fingerprint changes with what its code does, and with nothing else."""

import shutil
import subprocess
import sys

import pytest

from small_things import ROOT


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The code alone, read once, so that tests remember what they do not change."""
    folder = tmp_path_factory.mktemp("project")
    for part in ("workflow/anchorscope", "scripts"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    prints(folder)
    return folder


@pytest.fixture(scope="module")
def before(copied) -> dict[str, str]:
    """The fingerprints of the unchanged code."""
    return prints(copied)


@pytest.fixture
def project(copied, tmp_path):
    return shutil.copytree(copied, tmp_path, dirs_exist_ok=True)


def prints(project) -> dict[str, str]:
    """Fingerprints of all scripts, in a process of its own that sees the copied library."""
    code = (
        "import sys; sys.path.insert(0, 'workflow'); from pathlib import Path;"
        "from anchorscope.fingerprint import fingerprint, read_sources, PACKAGE; assert Path.cwd() in PACKAGE.parents;"
        "scripts = sorted(Path('scripts').glob('*.py'));"
        "sources = read_sources(scripts, remembered=Path('remembered.json'));"
        "[print(path.stem, fingerprint(path, sources)) for path in scripts]"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    return dict(line.split() for line in done.stdout.splitlines())


def changed(project, before) -> set[str]:
    return {name for name, value in prints(project).items() if value != before[name]}


def edit(path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_comments_docstrings_and_layout_change_no_fingerprint(project, before):
    for path in [*project.glob("workflow/anchorscope/**/*.py"), *project.glob("scripts/*.py")]:
        path.write_text(f"# a remark\n\n\n{path.read_text()}\n# the end\n")
    probe = project / "workflow/anchorscope/probe/logistic.py"
    edit(probe, '"""Linear probes, all at once', '"""Straight probes, one and all')
    edit(probe, '    """Class-balanced log loss', '    """Log loss, classes balanced')
    assert changed(project, before) == set()


# The stages of detection that run a model, and those that fit what tells hallucinated answers.
ASKING = {"run_again", "sample_answers"}
FITTING = {"fit_gates", "score_methods", "carry_over"}
# The stages that know which forms of questions and answers there are, and with them the words that tell forms.
OF_FORMS = {"estimate", "weigh_kinds", "report"}
# The stages that read or write tables with polars.
OF_EXPERIMENTS = {"tell_groups", "estimate_experiment", "summarise_experiments"}
FRAMES = {
    *("normalize", "probe", "read_text", "score_experiment"),
    *("estimate", "weigh_kinds", "summarise", "draw", "report"),
    *OF_EXPERIMENTS,
    *("compare_methods", *FITTING),
}


@pytest.mark.parametrize(
    ("module", "old", "new", "expected"),
    [
        (
            "probe/logistic.py",
            "NEWTON_STEPS = 60",
            "NEWTON_STEPS = 50",
            {"probe", "read_text", "saliency", "score_experiment", "tell_groups", "train_detector", *FITTING},
        ),
        ("summarise/pair_tables.py", "NULL_SIMULATIONS = 400", "NULL_SIMULATIONS = 500", {"estimate"}),
        ("summarise/accounts.py", "KNOTS = (0.05,", "KNOTS = (0.1,", {"weigh_kinds"}),
        (
            "summarise/verdict_on_kinds.py",
            "LEAST_GAIN = 0.01",
            "LEAST_GAIN = 0.02",
            {"weigh_kinds", "summarise", "draw", "report"},
        ),
        (
            "summarise/bootstrap.py",
            "resampled, 0.025",
            "resampled, 0.05",
            {"estimate", "weigh_kinds", "summarise", "report", "estimate_experiment"},
        ),
        ("summarise/claims.py", "SIMILAR = 25.0", "SIMILAR = 20.0", {"estimate_experiment", "summarise", "report"}),
        ("extract/interventions.py", "CONTROL_REACH = 16", "CONTROL_REACH = 8", {"extract", "saliency", "run_again"}),
        (
            "text/content_words.py",
            "please tell give",
            "please tell",
            {"normalize", "answer", "extract", "saliency", "summarise", "draw", *ASKING, *OF_FORMS},
        ),
        ("files/logs.py", "SECONDS_BETWEEN_LINES = 10", "SECONDS_BETWEEN_LINES = 5", set()),
        ("job.py", "gc.disable()", "gc.enable()", set()),
        ("draw/style.py", "COLUMN = 3.3", "COLUMN = 3.4", {"draw", "report"}),
        ("detect/compare.py", "np.arange(1, 101)", "np.arange(2, 101)", {"compare_methods", "report"}),
        ("files/frames.py", "ROWS = 100_000", "ROWS = 50_000", FRAMES),
        ("questions/local_rows.py", "ROWS = 10_000", "ROWS = 5_000", {"fetch_questions", "normalize"}),
        (
            "models/sizes.py",
            "FOR_WEIGHTS = 0.85",
            "FOR_WEIGHTS = 0.8",
            {"fetch_model", "answer", "extract", "saliency", *ASKING},
        ),
        ("engine/fused.py", "TRIAL = 64", "TRIAL = 32", {"answer", "extract", "saliency", *ASKING}),
        ("answer/answers.py", "MAX_NEW_TOKENS = 32", "MAX_NEW_TOKENS = 16", {"answer", "sample_answers"}),
        (
            "choose/balance.py",
            "if balance else list(",
            "if not balance else list(",
            {"choose", "saliency", "probe", "count_examples", "report"},
        ),
        ("experiments/measure_saliency.py", "MOST = 500", "MOST = 400", {"saliency"}),
        ("report/figures.py", "WIDTH = 1400", "WIDTH = 1200", {"report"}),
        ("commands/damage.py", "import sys", "import os\nimport sys", set()),
    ],
)
def test_a_change_of_meaning_reaches_exactly_the_stages_that_import_it(project, before, module, old, new, expected):
    edit(project / "workflow" / "anchorscope" / module, old, new)
    assert changed(project, before) == expected


# Which stages may use which room. A stage that begins to use another one is a change of the flow.
STAGES = {
    "text": {
        *("normalize", "answer", "extract", "read_text", "saliency", "train_detector", "summarise", "draw"),
        *(*OF_FORMS, *ASKING, "score_methods", "carry_over"),
    },
    "questions": {"fetch_questions", "normalize"},
    "models": {
        *("fetch_model", "describe_salmon", "answer", "extract", "probe", "saliency", "score_experiment"),
        *("draw", "report", "score_methods", "carry_over", "train_detector", *ASKING),
    },
    "engine": {"answer", "extract", "saliency", *ASKING},
    "answer": {"answer", "extract", "saliency", *ASKING},
    # Besides choosing: drawing a few of the chosen examples, and how many answers there were before.
    "choose": {"choose", "saliency", "probe", "count_examples", "report"},
    "extract": {
        *("extract", "probe", "saliency", "score_experiment", "estimate", "weigh_kinds", "summarise", "draw", "report"),
        *("tell_groups", "estimate_experiment", "train_detector", "run_again", *FITTING),
    },
    "probe": {
        *("probe", "read_text", "saliency", "score_experiment", "estimate", "weigh_kinds", "summarise", "report"),
        *("draw", "compare_methods", *OF_EXPERIMENTS, "train_detector", "run_again", *FITTING),
    },
    "summarise": {
        *("estimate", "weigh_kinds", "summarise", "count_examples", "draw", "report"),
        *("compare_methods", *OF_EXPERIMENTS),
    },
    "experiments": {
        *("saliency", "score_experiment", "tell_groups", "estimate_experiment", "summarise", "draw", "report"),
    },
    "detect": {"compare_methods", "draw", "report", "train_detector", *ASKING, *FITTING},
    "draw": {"draw", "report"},
    "report": {"report"},
}


@pytest.mark.parametrize("room", STAGES)
def test_a_change_anywhere_in_a_room_reaches_the_stages_of_that_room_only(project, before, room):
    for path in (project / "workflow/anchorscope" / room).glob("*.py"):
        path.write_text(f"{path.read_text()}\nCHANGED = True\n")
    assert changed(project, before) == STAGES[room]


def test_every_room_of_a_stage_is_in_the_table():
    rooms = {path.parent.name for path in (ROOT / "workflow/anchorscope").glob("*/__init__.py")}
    assert rooms == {*STAGES, "files", "api", "commands", "compare"}


def test_a_scripts_own_change_counts(project, before):
    edit(project / "scripts/answer.py", "threads=snakemake.threads", "threads=1")
    assert changed(project, before) == {"answer"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import anchorscope.nowhere", "imports anchorscope.nowhere, which is not in"),
        ("from anchorscope.nowhere import something", "imports anchorscope.nowhere.something, which is not in"),
        (
            "from anchorscope.questions.nowhere import something",
            "imports anchorscope.questions.nowhere.something",
        ),
        ("from .questions import normalize", "imports by a relative name; write the full name"),
    ],
)
def test_an_import_of_the_library_that_cannot_be_found_is_an_error(project, line, said):
    edit(project / "scripts/normalize.py", "\nfrom anchorscope", f"\n{line}\nfrom anchorscope")
    with pytest.raises(subprocess.CalledProcessError) as error:
        prints(project)
    assert said in error.value.stderr


@pytest.mark.parametrize("damage", ["", "[]", '{"a": 1}', '{"a": [1, 2, 3]}', "\x00"])
def test_what_was_read_is_remembered_and_damage_to_it_changes_nothing(project, damage):
    first = prints(project)
    remembered = project / "remembered.json"
    before = remembered.stat().st_mtime_ns
    assert prints(project) == first
    assert remembered.stat().st_mtime_ns == before  # not written again
    remembered.write_text(damage)
    assert prints(project) == first
