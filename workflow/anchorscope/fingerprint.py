"""A hash of what a stage's code does, blind to comments, docstrings and layout.

Snakemake does not see the library that a script imports. Each rule therefore passes the fingerprint of
its script among its params, so that a change of meaning reruns exactly the stages that use the changed code.
"""

import ast
import hashlib
import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from anchorscope.files.atomic import atomic

PACKAGE = Path(__file__).resolve().parent
# What a job says, and how it begins, does not change what it computes.
WITHOUT_EFFECT = frozenset([PACKAGE / "files/logs.py", PACKAGE / "job.py"])
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # the lists of statements that a statement may hold


class SourceFile(NamedTuple):
    """What matters of a file of code."""

    meaning: str  # a hash of its syntax tree
    files: set[Path]  # of the library, that run when it is imported


Sources = dict[Path, SourceFile]
Parsed = tuple[str, list[list[str]]]  # the meaning, and the imports: each a module, or a module and a name in it


def read_sources(scripts: Iterable[Path], remembered: Path | None = None) -> Sources:
    """The library's files and some scripts.

    `remembered` is a file that keeps what was read, by the text's hash: a text that it has is not parsed again. Every
    start of the workflow, and on a cluster every job's, would wait for that.
    """
    known = _remembered(remembered) if remembered else {}
    found: dict[Path, Parsed] = {}
    kept: dict[str, Parsed] = {}
    for path in [*PACKAGE.rglob("*.py"), *map(Path.resolve, scripts)]:
        text = path.read_bytes()
        key = hashlib.sha256(platform.python_version().encode() + text).hexdigest()
        found[path] = kept[key] = known.get(key) or _read(text, path)
    if remembered and kept.keys() != known.keys():
        with suppress(OSError), atomic(remembered) as target:  # the next start then only parses them again
            target.write_text(json.dumps(kept), encoding="utf-8")
    modules = {_module(path): path for path in found if path.is_relative_to(PACKAGE)}
    return {
        path: SourceFile(meaning, set().union(*(_files(path, modules, *names) for names in imports)))
        for path, (meaning, imports) in found.items()
    }


def _remembered(path: Path) -> dict[str, Parsed]:
    """Nothing if the file that keeps it is damaged."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return {key: (meaning, imports) for key, (meaning, imports) in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def fingerprint(script: Path, sources: Sources) -> str:
    """Hash a script and every anchorscope module that it imports, at any depth."""
    digest = hashlib.sha256()
    for name, path in sorted((_name(path), path) for path in reachable(Path(script).resolve(), sources)):
        digest.update(f"{name}\n{sources[path].meaning}\n".encode())
    return digest.hexdigest()[:16]


def _name(path: Path) -> str:
    """The path of a file in the library, or of a script: a script and a module may share a file name."""
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else f"scripts/{path.name}"


def reachable(start: Path, sources: Sources) -> set[Path]:
    """A file and all of the library's that it imports, at any depth."""
    seen: set[Path] = set()
    todo = [start]
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            todo.extend(sources[path].files - WITHOUT_EFFECT)
    return seen


def _module(path: Path) -> str:
    """The name by which a file of the library is imported."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def _files(importer: Path, modules: Mapping[str, Path], module: str, name: str | None = None) -> set[Path]:
    """The files that run at an import: the module and the packages around it, and the name if it is a module, too.

    One that is not among the library's `modules` is an error, because its changes would go unnoticed.
    """
    parts = module.split(".")
    imported = {".".join(parts[: count + 1]) for count in range(len(parts))}
    if f"{module}.{name}" in modules:
        imported.add(f"{module}.{name}")
    if not imported <= modules.keys():
        raise ImportError(f"{importer} imports {'.'.join(filter(None, [module, name]))}, which is not in {PACKAGE}.")
    return {modules[one] for one in imported}


def _read(text: bytes, path: Path) -> Parsed:
    """Parse a file. Docstrings are left out."""
    tree = ast.parse(text)
    imports = []
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            imports += [[alias.name] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ImportError(f"{path}: line {node.lineno} imports by a relative name; write the full name.")
            imports += [[str(node.module), alias.name] for alias in node.names]
        elif isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = node.body[ast.get_docstring(node, clean=False) is not None :]
    own = [names for names in imports if names[0].split(".")[0] == PACKAGE.name]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), own


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """A node and every statement within it, but no expression: none holds an import or a docstring."""
    yield node
    for block in BLOCKS:
        for inner in getattr(node, block, ()):
            yield from _statements(inner)
