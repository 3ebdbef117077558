"""A name that one module gives to others stands for one thing: no second module defines it."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from small_things import ROOT

LIBRARY = ROOT / "workflow/anchorscope"


def defined(module: ast.Module) -> Iterator[str]:
    """What a module names at its top level, but for what it keeps to itself by an underscore."""
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = (node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
            yield from (name.id for name in names if isinstance(name.ctx, ast.Store) and not name.id.startswith("_"))


def given(files: list[Path]) -> set[str]:
    """Every name that a file imports from the library."""
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    imports = (
        node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("anchorscope")
    )
    return {alias.name for node in imports for alias in node.names}


def with_two_meanings(library: Path, files: list[Path]) -> dict[str, list[str]]:
    """The modules that define a name which others import, where there is more than one."""
    modules = defaultdict(set)
    for path in sorted(library.rglob("*.py")):
        for name in defined(ast.parse(path.read_text(encoding="utf-8"))):
            modules[name].add(path.relative_to(library).as_posix())
    public = given(files)
    return {name: sorted(where) for name, where in modules.items() if name in public and len(where) > 1}


def test_a_public_name_stands_for_one_thing():
    files = [
        path for folder in ("workflow", "scripts", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")
    ]
    assert with_two_meanings(LIBRARY, files) == {}


def test_a_second_meaning_is_found(tmp_path):
    (tmp_path / "one.py").write_text("class Curve:\n    pass\n\nKEPT: int = 1\n_OWN = 2\n", encoding="utf-8")
    (tmp_path / "two.py").write_text("first, (KEPT, rest) = 1, (2, 3)\nCurve = _OWN = {}\n", encoding="utf-8")
    user = tmp_path / "user.py"
    user.write_text("from anchorscope.one import Curve as Line\n", encoding="utf-8")
    assert with_two_meanings(tmp_path, [user]) == {"Curve": ["one.py", "two.py"]}
    user.write_text("from anchorscope.two import (\n    Curve,\n    KEPT,\n)\n", encoding="utf-8")
    assert set(with_two_meanings(tmp_path, [user])) == {"Curve", "KEPT"}
