"""A hash of what a stage's code does, blind to comments, docstrings and layout.

Snakemake does not see the library that a script imports. Each rule therefore passes
`code=fingerprint(script)` among its params, so that a change of meaning reruns exactly the
stages that use the changed code.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
WITHOUT_EFFECT = frozenset(("logs.py",))  # what a job says does not change what it computes


def fingerprint(script: Path) -> str:
    """Hash the syntax tree of `script` and of every anchorscope module it imports, at any depth."""
    digest = hashlib.sha256()
    # A script and a module may have the same name; their folders tell them apart.
    for place, path in sorted(((path.parent.name, path.name), path) for path in _reachable(Path(script).resolve())):
        digest.update(f"{'/'.join(place)}\n{_meaning(path)}\n".encode())
    return digest.hexdigest()[:16]


def _reachable(start: Path) -> set[Path]:
    seen: set[Path] = set()
    todo = [start]
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            todo.extend(_imports(path))
    return seen


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    files = (PACKAGE / f"{name.removeprefix('anchorscope.')}.py" for name in names if name.startswith("anchorscope."))
    return tuple(sorted(file for file in files if file.exists() and file.name not in WITHOUT_EFFECT))


@cache
def _meaning(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:]
    return ast.dump(tree)
