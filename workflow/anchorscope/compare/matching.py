"""What two runs have in common: which models and datasets can be compared, why others cannot, and what else differs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from anchorscope.compare.finished import FinishedRun, ModelRun
from anchorscope.probe.examples import Pair

ASKED_ALIKE = ("balance", "folds")  # settings without which two runs measure different things
SAMPLED = ("questions", "shard_size", "seed", "repeats")  # that change the sample, or how finely it is measured
STAGES = ("normalize", "answer", "choose", "extract", "probe", "estimate")  # whose code makes the curves
NO_MODEL = "the other run does not have this model"


@dataclass(frozen=True)
class Match:
    """A model of this run, on one dataset or on all, and what it is in the other run, or why it cannot be compared."""

    model: str
    dataset: str | None = None
    other: Pair | None = None
    because: str | None = None


def match_runs(run: FinishedRun, other: FinishedRun) -> list[Match]:
    """Every model and dataset of this run. A model that cannot be compared on any dataset is there once."""
    found: list[Match] = []
    for name, model in run.models.items():
        alike = (there for there, twin in other.models.items() if _same_weights(model, twin))
        twin = _named_or_first(name, alike) or (name if name in other.models else None)
        because = NO_MODEL if twin is None else _unlike(run, other, name, twin)
        if twin is None or because:
            found.append(Match(name, because=because))
        else:
            found += _match_datasets(run, other, name, twin)
    return found


def _match_datasets(run: FinishedRun, other: FinishedRun, model: str, twin: str) -> Iterator[Match]:
    probed, probed_there = (set(some.summary.select("model", "dataset").unique().iter_rows()) for some in (run, other))
    for name, dataset in run.datasets.items():
        alike = (there for there, one in other.datasets.items() if one.questions == dataset.questions)
        there = _named_or_first(name, alike)
        if there is None:
            other_file = "its questions are others in the other run (another file or revision)"
            because = other_file if name in other.datasets else "the other run does not have these questions"
        elif (model, name) not in probed:
            because = "this run could not probe it"
        elif (twin, there) not in probed_there:
            because = "the other run could not probe it"
        else:
            yield Match(model, name, other=(twin, there))
            continue
        yield Match(model, name, because=because)


def _same_weights(model: ModelRun, other: ModelRun) -> bool:
    """By repository, whatever its revision, or by the hash of the files."""
    return (model.hub is not None and model.hub == other.hub) or model.revision == other.revision


def _named_or_first(name: str, found: Iterable[str]) -> str | None:
    """Of several that are alike the one of the same name, or the first."""
    names = list(found)
    return name if name in names else next(iter(names), None)


def _unlike(run: FinishedRun, other: FinishedRun, name: str, twin: str) -> str | None:
    """Why no curve of a model can be compared, if so."""
    here, there = run.models[name], other.models[twin]
    for what, one, two in (
        ("weights", here.weights, there.weights),
        ("layers", here.layers, there.layers),
        ("prompt", here.prompt, there.prompt),
        *((key, run.settings.get(key), other.settings.get(key)) for key in ASKED_ALIKE),
    ):
        if one != two:
            return f"other {what}: {one} here, {two} there"
    if other.curves(run.headline).is_empty():
        return f"the other run did not measure {run.headline.component} at {run.headline.position}"
    return None


def also_different(run: FinishedRun, other: FinishedRun, matches: Iterable[Match]) -> list[str]:
    """What else the provenance of two runs tells apart: it may explain a difference, but hinders no comparison."""
    pairs = dict.fromkeys((match.model, match.other[0]) for match in matches if match.other)
    said = [
        f"{what} of {run.models[name].title} ({one} here, {two} there)"
        for name, twin in pairs
        for what, one, two in (
            ("weights", run.models[name].revision[:12], other.models[twin].revision[:12]),
            ("dtype", " and ".join(run.models[name].dtypes), " and ".join(other.models[twin].dtypes)),
        )
        if one != two
    ]
    said += _unequal(run.settings, other.settings, SAMPLED)
    stages = [stage for stage in STAGES if run.code.get(stage) != other.code.get(stage)]
    said += [f"code ({', '.join(stages)})"] if stages else []
    return said + _unequal(run.libraries, other.libraries, sorted({*run.libraries, *other.libraries}))


def _unequal(here: Mapping, there: Mapping, names: Iterable[str]) -> list[str]:
    return [
        f"{name} ({here.get(name)} here, {there.get(name)} there)"
        for name in names
        if here.get(name) != there.get(name)
    ]
