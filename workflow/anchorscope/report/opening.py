"""What the page begins with: one sentence and four numbers of each model, the published figure, and warnings."""

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup

from anchorscope.report.figures import Picture
from anchorscope.report.page import render
from anchorscope.report.tables import Titles
from anchorscope.summarise.wording import between, signed

MOST_MODELS = 4  # of which each has a card; more are a table
GAPS = {  # a number's name, its title, what it means, and the section that it comes from
    "published": ("published rule", "one probe labels and measures", "figures"),
    "honest": ("honest", "one prompt labels, another measures", "the-honest-gap"),
    "recentred": ("without the push", "less what the cut does to all examples alike", "the-honest-gap"),
}


def opening_section(
    numbers: Mapping[str, Mapping],
    bottom_line: Titles,
    models: Titles,
    datasets: Titles,
    pictures: Iterable[Picture],
    notes: Sequence[str],
) -> Markup:
    """`numbers` and `bottom_line` are those of claims.json, by model; of the pictures, the one at the top is shown."""
    shown = [
        {
            "title": models[name],
            "examples": f"{own['examples']:,}",
            "sentence": outcome_sentence(own) or bottom_line[name],
            "numbers": [*map(_gap, GAPS, (own[gap] for gap in GAPS)), _verdict_on_kinds(own["kinds"], datasets)],
        }
        for name, own in numbers.items()
        if name in models
    ]
    warnings = [
        f"{models[name]}: {' '.join(own['warnings'])}"
        for name, own in numbers.items()
        if name in models and own["warnings"]
    ]
    published = [picture for picture in pictures if picture.kind.placement == "top"]
    return render("opening.html", models=shown, most=MOST_MODELS, published=published, notes=[*notes, *warnings])


def outcome_sentence(own: Mapping) -> str | None:
    """What is left of the published gap, in one sentence; None where there is none to begin with."""
    if own["published"] is None or not own["honest"] or None in own["honest"] or None in own["recentred"]:
        return None
    published, honest, recentred = signed(own["published"]), signed(own["honest"][0]), signed(own["recentred"][0])
    gap = f"The gap of {published} points by the published rule"
    if own["honest"][2] >= 0:
        return f"{gap} cannot be told from zero when another prompt measures it."
    left = f"{gap} is {honest} when another prompt measures it, and"
    if own["recentred"][2] >= 0:
        return f"{left} cannot be told from zero without the push that the cut gives to all examples."
    return f"{left} {recentred} without the push that the cut gives to all examples."


def _gap(name: str, value: float | Sequence[float | None] | None) -> dict[str, str]:
    """A gap as a large number; the published one has no interval, for it is not a test."""
    title, meaning, link = GAPS[name]
    effect, low, high = value if isinstance(value, Sequence) else (value, None, None)
    shown = {"title": title, "meaning": meaning, "link": link, "interval": ""}
    if effect is None:
        return shown | {"value": "–"}
    return shown | {"value": signed(effect), "interval": "" if low is None else between(low, high)}


def _verdict_on_kinds(kinds: Mapping[str, Sequence[str]], datasets: Titles) -> dict[str, str]:
    """The verdict that most datasets have, and those of the others."""
    shown = {"title": "two kinds of examples?", "link": "claims", "interval": ""}
    if not kinds:
        return shown | {"value": "–", "meaning": "not judged"}
    (verdict, most), *others = sorted(kinds.items(), key=lambda item: -len(item[1]))
    by_verdict = {"": most, **dict(others)}
    where = [f"{other} on {', '.join(datasets[name] for name in some)}".strip() for other, some in by_verdict.items()]
    return shown | {"value": verdict, "meaning": "; ".join(where)}
