"""Compares a run with the published figures and with another run: a figure, a table, a page and a few lines."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from anchorscope.compare.finished import FinishedRun, read_finished
from anchorscope.compare.judging import (
    BEYOND_REACH,
    NOT_COMPARABLE,
    OTHER_RUN,
    THE_FIGURES,
    WITHIN_REACH,
    Compared,
    as_table,
    beside_other,
    beside_published,
)
from anchorscope.compare.matching import Match, also_different, match_runs
from anchorscope.compare.picture import draw_comparison
from anchorscope.draw.facets import save
from anchorscope.draw.style import read_style
from anchorscope.files.atomic import write_text
from anchorscope.files.csv_file import write_csv
from anchorscope.files.faults import check_file, shortened
from anchorscope.summarise.claims_page import LOGITS_TITLES, Row, markdown_table
from anchorscope.summarise.wording import notes, signed, signed_between, with_interval

FIGURES = ("comparison.svg", "comparison.png")
EXPLANATIONS = {
    THE_FIGURES: """Within: the curve lies in the range that was read off the published figure, or at most
{tolerance:.0f} points outside, as well as a figure can be read. The difference is how far outside it lies, in its
farthest layer. Rule `flip`, as published.""",
    OTHER_RUN: """Within: both runs may have measured the same, each on questions of its own. The difference (this run
minus the other) is then at most its reach, in every layer: the reach comes from both 95 % intervals, and allows for
all numbers that are compared here at once, so that runs which differ by nothing but their questions show a number
beyond in at most 5 % of such comparisons, if the intervals are right; three repeats tell them only roughly, which can
make several times as many. Runs that share questions differ less. A curve is given at the layer that
differs most; curves under the rule `flip`, gaps under `honest`.""",
}
HEADINGS = {THE_FIGURES: "The published figures", OTHER_RUN: "The other run"}
BESIDE = {THE_FIGURES: "published", OTHER_RUN: "the other run"}  # what a number stands beside
NOTHING_ELSE = "In all else that their records tell, both runs are alike."


def compare_runs(run: Path | str, other: Path | str | None = None, *, output: Path | str, landmarks: Path | str) -> str:
    """Put a run's curves beside the published figures and, if there is one, beside another run.

    `run` and `other` are folders of results, or folders that hold one; nothing is written there. `landmarks` is
    workflow/resources/landmarks.yaml. The folder `output` gets `comparison.svg` and `.png`, `comparison.csv` and
    `comparison.md`. Returns a few lines: how much is within, beyond, and not comparable, and why. `judging` says what
    these mean.
    """
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{shortened(folder)} is no folder; name one for the comparison.")
    check_file(landmarks, "name the file of landmarks")
    published = yaml.safe_load(Path(landmarks).read_text(encoding="utf-8"))
    this, that = read_finished(run), None if other is None else read_finished(other)
    matches = match_runs(this, that) if that else []
    rows = beside_published(this, published) + (beside_other(this, that, matches) if that else [])
    figure = draw_comparison(this, that, matches, published)
    for name in FIGURES:
        save(figure, folder / name, read_style())
    write_csv(folder / "comparison.csv", as_table(rows))
    alike = [_alike(this, that, matches)] if that else []
    page = [
        f"# Comparison\n\nThis run: `{run}`." + (f" The other run: `{other}`." if that else ""),
        *_notes(this),
        f"![ΔP by layer, a row of panels for each dataset]({FIGURES[0]})",
        *_sections(this, rows, published["tolerance"]),
        *alike,
        *(_claims_of_both(this, that, matches) if that else ()),
    ]
    write_text(folder / "comparison.md", "\n\n".join(page) + "\n")
    return "\n".join([*_lines(this, rows), *alike, f"Written: {folder}"])


def _notes(run: FinishedRun) -> Iterator[str]:
    """What a reader must know before taking the numbers for published ones: random weights, bundled questions."""
    models, datasets = ({name: one.title for name, one in some.items()} for some in (run.models, run.datasets))
    return notes(run.summary, models, datasets)


def _sections(run: FinishedRun, rows: Iterable[Compared], tolerance: float) -> list[str]:
    """What is compared with the published figures, and with another run, each as a table below its explanation."""
    found = []
    for against, about in EXPLANATIONS.items():
        mine = [_cells(run, row) for row in rows if row.against == against]
        if mine:
            table = markdown_table(list(mine[0]), mine)
            found += [f"## {HEADINGS[against]}", about.format(tolerance=tolerance), table]
    return found


def _cells(run: FinishedRun, row: Compared) -> Row:
    there = row.other_low, row.other_high
    between = None if there[0] is None else signed(there[0]) if there[0] == there[1] else signed_between(*there)
    other = between if row.other is None else with_interval(row.other, *there, number=signed)
    return {
        "model": run.models[row.model].title,
        "dataset": run.datasets[row.dataset].title if row.dataset else "all",
        "what": row.what,
        "layer": row.layer,
        "this run": with_interval(row.value, row.low, row.high, number=signed),
        BESIDE[row.against]: other,
        "difference": None if row.difference is None else signed(row.difference),
        "reach": row.reach,
        "verdict": f"{row.verdict}: {row.because}" if row.because else row.verdict,
    }


def _alike(run: FinishedRun, other: FinishedRun, matches: Sequence[Match]) -> str:
    different = also_different(run, other, matches)
    return f"The runs also differ in {', '.join(different)}." if different else NOTHING_ELSE


def _claims_of_both(run: FinishedRun, other: FinishedRun, matches: Sequence[Match]) -> list[str]:
    """What both runs say of each claim about what both have; of all datasets together where these are the same."""
    twins: dict[tuple, tuple] = {(match.model, match.dataset): match.other for match in matches if match.other}
    if len(run.datasets) > 1 and len(twins) == len(matches) and len(run.datasets) == len(other.datasets):
        twins = {(model, None): (twin, None) for (model, _), (twin, _) in twins.items()}
    theirs = {_key(row): row for row in other.claims}
    rows = [
        _both_verdicts(run, row, twin)
        for row in run.claims
        if (there := twins.get((row["model"], row["dataset"])))
        and (twin := theirs.get(_key({**row, "model": there[0], "dataset": there[1]})))
    ]
    return ["## The claims in both runs", markdown_table(list(rows[0]), rows)] if rows else []


def _key(row: Mapping) -> tuple:
    return tuple(row[name] for name in ("claim", "model", "dataset", "logits", "rule"))


def _both_verdicts(run: FinishedRun, here: Mapping, there: Mapping) -> Row:
    found = [
        row["because"] if row["effect"] is None else with_interval(row["effect"], row["low"], row["high"], 1, signed)
        for row in (here, there)
    ]
    return {
        "claim": f"{here['claim']}. {run.statements[str(here['claim'])]}",
        "model": run.models[here["model"]].title,
        "dataset": run.datasets[here["dataset"]].title if here["dataset"] else "all",
        "logits": LOGITS_TITLES[here["logits"]],
        "this run": f"{here['verdict']}: {found[0]}",
        "the other run": f"{there['verdict']}: {found[1]}",
        "same verdict": "yes" if here["verdict"] == there["verdict"] else "no",
    }


def _lines(run: FinishedRun, rows: Sequence[Compared]) -> list[str]:
    """How many are within, beyond and not comparable; then each that is beyond, and why others cannot be compared."""
    said = []
    for against, heading in HEADINGS.items():
        mine = [row for row in rows if row.against == against]
        if mine:
            counts = Counter(row.verdict for row in mine)
            verdicts = (f"{counts[name]} {name}" for name in (WITHIN_REACH, BEYOND_REACH, NOT_COMPARABLE))
            said.append(f"{heading}: {', '.join(verdicts)}.")
            said += [f"  {BEYOND_REACH}: {_sentence(run, row)}" for row in mine if row.verdict == BEYOND_REACH]
            said += [f"  {NOT_COMPARABLE}: {why}" for why in _reasons(run, [row for row in mine if row.value is None])]
    return said


def _reasons(run: FinishedRun, rows: Iterable[Compared]) -> Iterator[str]:
    """Why numbers cannot be compared, each reason once for a model, with the number if it is only one."""
    by_reason: dict[tuple[str, str | None], list[Compared]] = {}
    for row in rows:
        by_reason.setdefault((row.model, row.because), []).append(row)
    for (model, because), some in by_reason.items():
        which = _where(run, some[0]) if len(some) == 1 else f"{run.models[model].title}, {len(some)} times"
        yield f"{which}: {because}."


def _where(run: FinishedRun, row: Compared) -> str:
    on = f" on {run.datasets[row.dataset].title}" if row.dataset else ""
    layer = "" if row.layer is None else f" (layer {row.layer})"
    return f"{run.models[row.model].title}{on}, {row.what}{layer}"


def _sentence(run: FinishedRun, row: Compared) -> str:
    cells, beside = _cells(run, row), BESIDE[row.against]
    also = f"; {row.because}." if row.because else "."
    return f"{_where(run, row)}: {cells['this run']}, {beside} {cells[beside]}{also}"
