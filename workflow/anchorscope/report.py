"""One self-contained page: the figures, what they rest on, and the settings that made them."""

import base64
from html import escape

import polars as pl

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
figure { margin: 2rem 0; } img { width: 100%; background: white; border-radius: 4px; }
figcaption, .note { opacity: 0.75; font-size: 0.9em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.85em; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.2rem 0.7rem; border-bottom: 1px solid #8884; white-space: nowrap; }
pre { overflow-x: auto; padding: 1rem; border: 1px solid #8884; border-radius: 4px; font-size: 0.8em; }
"""


def page(
    figures: dict[str, bytes],
    note: str,
    claims: dict,
    deepest: pl.DataFrame,
    examples: pl.DataFrame,
    settings: str,
    made_by: str,
) -> str:
    """The report as HTML. Figures are PNG bytes by name; every text is escaped."""
    shown = "\n".join(
        f'<figure><img alt="Figure {escape(name)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        f"<figcaption>{escape(name)}</figcaption></figure>"
        for name, png in figures.items()
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Anchorscope report</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Anchorscope</h1>
<p>ΔP is what a linear probe's confidence in its own verdict loses, in percentage points, when attention to the
question's content words is cut. Question-Anchored examples (Q) are those whose verdict flips, all others are
Answer-Anchored (A). Bands are 95 % intervals; a group of fewer than 20 examples is drawn faint, and so is a layer
whose probe is no better than chance. Grey: where each curve would lie if there were one mechanism and not two kinds of
examples (fitted to this run; 95 % of simulations).</p>
<p class="note">{escape(note)}</p>
{shown}
<h2>Claims</h2>
{claims_table(claims)}
<h2>At the deepest layer</h2>
<p>The layer where the Question-Anchored mean is lowest, under the published grouping (flip) and under the honest one
(replicate); the gap is Q minus A with its 95 % interval.</p>
{table(deepest)}
<h2>Questions and answers</h2>
{table(examples)}
<h2>Settings</h2>
<pre>{escape(settings)}</pre>
<p class="note">{escape(made_by)}</p>
</body>
</html>
"""


def table(frame: pl.DataFrame) -> str:
    """A data frame as an HTML table."""
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in frame.columns)
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{escape(_text(value))}</td>' for value in row)}</tr>" for row in frame.iter_rows()
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'


def _text(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def claims_table(claims: dict) -> str:
    """Every claim about a model or family on all its datasets, with its verdict."""
    several = {row["model"] for row in claims["claims"] if row["dataset"] is None and row["claim"] == 1}
    rows = [row for row in claims["claims"] if row["dataset"] is None or row["model"] not in several]
    shown = [
        {
            "claim": claims["statements"][str(row["claim"])],
            "model": row["model"],
            "dataset": row["dataset"] or "all",
            "verdict": row["verdict"],
            "effect": row["effect"],
            "low": row["low"],
            "high": row["high"],
            "because": row["because"] or "",
        }
        for row in rows
    ]
    return table(pl.DataFrame(shown, infer_schema_length=None))


def deepest_layers(summary: pl.DataFrame, component: str, position: str) -> pl.DataFrame:
    """One row a model, dataset and rule: Q, A and gap at the layer where Q is lowest."""
    keys = ["model", "weights", "dataset", "rule"]
    rows = summary.filter(
        (pl.col("component") == component)
        & (pl.col("position") == position)
        & (pl.col("intervention") == "exact_question")
        & pl.col("rule").is_in(["flip", "replicate"])
    )
    question, answer, gap = (rows.filter(pl.col("anchor") == name) for name in ("question", "answer", "gap"))
    return (
        question.drop_nulls("delta_p")
        .sort("delta_p", "layer")
        .unique(keys, keep="first", maintain_order=True)
        .join(answer, on=[*keys, "layer"], suffix="_a")
        .join(gap, on=[*keys, "layer"], suffix="_gap")
        .sort(keys)
        .select(
            *keys,
            "layer",
            n_Q="n",
            n_A="n_a",
            ΔP_Q="delta_p",
            ΔP_A="delta_p_a",
            gap="delta_p_gap",
            gap_low="low_gap",
            gap_high="high_gap",
            AUC_clean=pl.col("auc_clean").round(2).cast(pl.String),
            AUC_cut=pl.col("auc_intervened").round(2).cast(pl.String),
        )
    )
