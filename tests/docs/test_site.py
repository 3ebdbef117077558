"""The documentation site: its navigation and the pages hold together, and pages read alike there and on a code host."""

import re
from itertools import chain

import pytest
import yaml

from pages import PAGES
from small_things import ROOT

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
ELSEWHERE = SITE["extra"]["elsewhere"]


def entries() -> list[str]:
    """Every page that the navigation names."""
    sections = chain.from_iterable(section.values() for section in SITE["nav"])
    return [page for section in sections for entry in section for page in entry.values()]


def test_every_page_is_in_the_navigation_once():
    pages = [page.name for page in (ROOT / "docs").glob("*.md")]
    named = [entry for entry in entries() if "/" not in entry]
    assert sorted(named) == sorted([*pages, *ELSEWHERE])


@pytest.mark.parametrize("entry", entries())
def test_what_the_navigation_names_is_there(entry):
    folder, _, name = entry.rpartition("/")
    if folder == "notebooks":  # each of those that are there
        assert not name
    elif folder == "python":
        module = ROOT / "workflow" / name.removesuffix(".md").replace(".", "/")
        assert module.with_suffix(".py").is_file() or (module / "__init__.py").is_file()
    else:
        assert (ROOT / ELSEWHERE.get(entry, f"docs/{entry}")).is_file()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "config/README.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_a_block_in_a_list_belongs_to_it_on_the_site_too(page):
    """Code hosts take an indent of two or three spaces, the site only four."""
    assert re.findall(r"^ {1,3}```.*", page.read_text(encoding="utf-8"), re.M) == []


def test_the_sites_lock_is_plain_names_and_versions():
    lines = (ROOT / "requirements-docs.lock").read_text().split()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line) for line in lines)
    assert {"mkdocs", "mkdocs-material", "mkdocstrings-python"} <= {line.split("==")[0] for line in lines}
