"""What workflow/schemas/tables.yaml says about the tables of a run."""

import re
from itertools import product
from pathlib import Path

import yaml

from small_things import ROOT

DESCRIBED = yaml.safe_load((ROOT / "workflow/schemas/tables.yaml").read_text(encoding="utf-8"))
TABLES: dict[str, dict] = DESCRIBED["tables"]


def expanded(text: str) -> list[str]:
    """`{a,b}_{1,2}` as the shell reads it; `{name}` stays."""
    parts = re.split(r"\{([^{}]*,[^{}]*)\}", text)
    return ["".join(some) for some in product(*(p.split(",") if i % 2 else [p] for i, p in enumerate(parts)))]


def names(described: dict[str, list[str]]) -> list[str]:
    """The columns of a part of the file, whose keys may name several."""
    return [name for key in described for some in re.split(r", (?![^{]*\})", key) for name in expanded(some)]


def own_columns(table: str) -> list[str]:
    """All columns but those that every gathered table begins with."""
    described = TABLES[table]
    others = [name for other in described.get("all_of", []) for name in own_columns(other)]
    return [*others, *described.get("common", []), *names(described["columns"])]


def columns(table: str) -> list[str]:
    """The columns that a table has."""
    beginning = names(DESCRIBED["gathered"]) if TABLES[table].get("gathered") else []
    return [*beginning, *own_columns(table)]


def files(table: str, results: Path) -> list[Path]:
    """The files of a run that a pattern names. A name in braces has no dot, which divides the parts of a file name."""
    patterns = [re.sub(r"\\\{\w+\\\}", r"[^./]+", re.escape(name)) for name in expanded(table)]
    tables = [path for path in results.rglob("*") if path.suffix in (".parquet", ".csv")]
    return [
        path for pattern in patterns for path in tables if re.fullmatch(pattern, path.relative_to(results).as_posix())
    ]
