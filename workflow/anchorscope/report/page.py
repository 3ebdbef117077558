"""One self-contained page: what was found, the claims, the figures, what they rest on, and what made them."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl
from markupsafe import Markup

from anchorscope.draw.panels import FEW
from anchorscope.report.chart import javascript
from anchorscope.report.figures import Link
from anchorscope.report.rendering import render


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading that the contents link to."""

    title: str
    content: Markup

    @property
    def anchor(self) -> str:
        return re.sub(r"\W+", "-", self.title.lower())


def page(opening: Markup, notes: Iterable[str], sections: Iterable[Section]) -> str:
    """The report as HTML. It needs no other file."""
    return str(render("page.html", opening=opening, notes=notes, sections=list(sections))) + "\n"


def chart_section(spec: Mapping) -> Markup:
    """The chart, the script that draws it, and how to read it."""
    return render("chart.html", few=FEW, spec=spec, vega=Markup(javascript()))


def provenance_section(
    provenance: Mapping, models: Mapping[str, str], datasets: Mapping[str, str], file: Link
) -> Markup:
    """What made the run; `file` has all of it."""
    shown = ("architecture", "parameters", "layers", "width", "stored_dtype", "weights", "revision")
    manifests = [
        {
            "model": models[name],
            **{key: str(manifest[key]) for key in shown},
            **_computed(provenance["computed"][name]),
            "source": _words(manifest["source"]),
        }
        for name, manifest in provenance["models"].items()
    ]
    origins = [{"dataset": datasets[name], "origin": _words(origin)} for name, origin in provenance["datasets"].items()]
    return render(
        "provenance.html",
        models=pl.DataFrame(manifests),
        datasets=pl.DataFrame(origins),
        python=provenance["python"],
        libraries=" · ".join(f"{name} {version}" for name, version in sorted(provenance["libraries"].items())),
        settings=json.dumps(provenance["config"], indent=2, ensure_ascii=False),
        file=file,
    )


def _computed(records: list[dict]) -> dict[str, str]:
    """What a model was computed with; its jobs may have run on different machines."""
    columns = {"computed in": "dtype", "because": "dtype_because", "computed on": "device", "CPU threads": "threads"}
    return {title: ", ".join(dict.fromkeys(str(record[key]) for record in records)) for title, key in columns.items()}


def _words(values: Mapping) -> str:
    """Keys and values of a small mapping, one after the other."""
    parts = (f"{key} {_words(value) if isinstance(value, Mapping) else value}" for key, value in values.items())
    return ", ".join(part for part, value in zip(parts, values.values(), strict=True) if value is not None)
