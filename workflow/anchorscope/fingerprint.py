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
WITHOUT_EFFECT = frozenset([PACKAGE / "files/logs.py"])  # what a job says does not change what it computes


def fingerprint(script: Path) -> str:
    """Hash the syntax tree of `script` and of every anchorscope module that it imports, at any depth."""
    digest = hashlib.sha256()
    for name, path in sorted((_name(path), path) for path in _reachable(Path(script).resolve())):
        digest.update(f"{name}\n{_meaning(path)}\n".encode())
    return digest.hexdigest()[:16]


def _name(path: Path) -> str:
    """The path of a file in the library, or of a script: a script and a module may share a file name."""
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else f"scripts/{path.name}"


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
    """The library's files that a file imports. A missing one is an error, because its changes would go unnoticed."""
    files: set[Path] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                files.update(_files(alias.name, path))
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ImportError(f"{path}: line {node.lineno} imports by a relative name; write the full name.")
            for alias in node.names:
                files.update(_files(f"{node.module}.{alias.name}", path, attribute=True))
    return tuple(sorted(files - WITHOUT_EFFECT))


def _files(name: str, importer: Path, attribute: bool = False) -> set[Path]:
    """The files that run when `name` is imported: its module and the packages around it.

    With `attribute`, the last part may be an attribute instead of a module.
    """
    first, *parts = name.split(".")
    if first != PACKAGE.name:
        return set()
    files, path = {PACKAGE / "__init__.py"}, PACKAGE
    for number, part in enumerate(parts):
        path /= part
        if path.is_dir():
            files.add(path / "__init__.py")
        elif path.with_suffix(".py").exists():
            files.add(path.with_suffix(".py"))
        elif not (attribute and number == len(parts) - 1):
            raise ImportError(f"{importer} imports {name}, which is not in {PACKAGE}.")
    return files


@cache
def _meaning(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:]
    return ast.dump(tree)
