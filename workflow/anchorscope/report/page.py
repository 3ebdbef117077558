"""One self-contained page: the claims, the figures, what they rest on, and what made them."""

import json
import re
from collections.abc import Iterable, Mapping
from html import escape

import polars as pl

from anchorscope.report.chart import javascript
from anchorscope.report.style import SCRIPT, STYLE
from anchorscope.report.tables import table

# Nothing may be loaded from anywhere; Vega compiles its expressions, and so needs eval.
POLICY = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'"


def page(notes: Iterable[str], sections: Mapping[str, str]) -> str:
    """The report as HTML: notes are text, sections HTML by title. With `chart_section` among them it needs no other."""
    anchors = {title: re.sub(r"\W+", "-", title.lower()) for title in sections}
    contents = "\n".join(f'<a href="#{name}">{escape(title)}</a>' for title, name in anchors.items())
    body = "\n".join(
        f'<section id="{anchors[title]}">\n<h2>{escape(title)}</h2>\n{content}\n</section>'
        for title, content in sections.items()
    )
    noted = "\n".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Anchorscope report</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>Anchorscope</h1>
<p>A language model answers a question, rightly or wrongly, and a linear probe on its hidden states tells which.
<b>ΔP</b> is what the probe's confidence in its own verdict loses, in percentage points, when attention to the
question's content words is cut. <b>Question-Anchored</b> examples (Q) are those whose verdict flips; all others are
<b>Answer-Anchored</b> (A).</p>
{noted}
<nav aria-label="Contents">
{contents}
</nav>
</header>
<main>
{body}
</main>
</body>
</html>
"""


def chart_section(spec: Mapping) -> str:
    """The chart, the script that draws it, and how to read it."""
    return f"""<p class="soft">One panel a model. Solid: Question-Anchored; dashed: Answer-Anchored. Bands are 95 %
intervals. Faint: fewer than 20 examples, or a probe no better than chance. Grey: where a curve would lie if one
mechanism shifted every example's logit (fitted to this run; 95 % of simulations; only where that was simulated).
Point at a curve for its numbers; click an entry of the legend to hide or show its curve.</p>
<div id="menus"></div>
<div id="chart"><noscript>This figure needs JavaScript; the same figures follow as pictures.</noscript></div>
<script type="application/json" id="chart-spec">{safe_json(spec)}</script>
<script>{javascript()}</script>
<script type="module">{SCRIPT}</script>"""


def safe_json(value: object) -> str:
    """JSON that no text in it can end or comment out, wherever in HTML it stands."""
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return compact.replace("<", r"\u003c")


def provenance_section(made: Mapping, models: Mapping[str, str], datasets: Mapping[str, str], file: str) -> str:
    """What made the run; `file` links to all of it."""
    shown = ("architecture", "parameters", "layers", "width", "stored_dtype", "weights", "revision")
    manifests = [
        {"model": models[name], **{key: str(manifest[key]) for key in shown}, "source": _words(manifest["source"])}
        for name, manifest in made["models"].items()
    ]
    origins = [{"dataset": datasets[name], "origin": _words(origin)} for name, origin in made["datasets"].items()]
    libraries = " · ".join(f"{name} {version}" for name, version in sorted(made["libraries"].items()))
    settings = json.dumps(made["config"], indent=2, ensure_ascii=False)
    return f"""{table(pl.DataFrame(manifests))}
{table(pl.DataFrame(origins))}
<p class="soft">Python {escape(made["python"])} · {escape(libraries)}. All of it, with a fingerprint of the code of
every stage: {file}.</p>
<details><summary>Settings</summary>
<pre>{escape(settings)}</pre>
</details>"""


def _words(values: Mapping) -> str:
    """Keys and values of a small mapping, one after the other."""
    parts = (f"{key} {_words(value) if isinstance(value, Mapping) else value}" for key, value in values.items())
    return ", ".join(part for part, value in zip(parts, values.values(), strict=True) if value is not None)
