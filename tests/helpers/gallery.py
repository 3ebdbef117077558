"""The gallery: tables of a real run that lie beside docs/gallery.md, and the figures that are drawn from them.

`make gallery` draws the figures again; `make gallery RUN=folder` takes the tables from that folder's results first.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from anchorscope.draw.facets import save
from anchorscope.draw.functions import draw_figure
from anchorscope.draw.style import BUNDLED_STYLE, read_style
from anchorscope.draw.view import View
from anchorscope.files.frames import read_frame
from anchorscope.report.pictures import small_svg
from small_things import ROOT

GALLERY = ROOT / "docs/gallery"
TABLES = ("accounts", "deepest", "detection", "layers", "summary")
RECORDS = ("claims.json", "provenance.json")
KINDS = ("family", "honest", "push", "lines", "detection")  # of each model
TOGETHER = ("family",)  # of all models


def config() -> dict:
    return yaml.safe_load((GALLERY / "config.yaml").read_text(encoding="utf-8"))


def titles(kind: str) -> dict[str, str]:
    """Titles of the models or of the datasets."""
    return {name: entry["title"] for name, entry in config()[kind].items()}


def figures() -> Iterator[tuple[str, str]]:
    """The name and the SVG of each figure."""
    tables = {name: read_frame(GALLERY / f"{name}.parquet") for name in TABLES}
    models, datasets, style = titles("models"), titles("datasets"), read_style(BUNDLED_STYLE)
    wanted = [(kind, kind, models) for kind in TOGETHER]
    wanted += [(f"{kind}-{model}", kind, {model: title}) for model, title in models.items() for kind in KINDS]
    with TemporaryDirectory() as folder:
        for name, kind, shown in wanted:
            file = Path(folder) / f"{name}.svg"
            save(draw_figure(kind, tables, View(shown, datasets, style=style)), file, style)
            yield file.name, small_svg(file.read_text(encoding="utf-8"))


def take(results: Path) -> None:
    for name in (*(f"{table}.parquet" for table in TABLES), *RECORDS):
        shutil.copyfile(results / name, GALLERY / name)


if __name__ == "__main__":
    for run in filter(None, sys.argv[1:]):
        take(Path(run) / "results")
    for name, svg in figures():
        (GALLERY / name).write_text(f"{svg}\n", encoding="utf-8")
