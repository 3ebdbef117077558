"""Run tests as other machines would: with other instructions, threads, letters, clocks, rights, users and homes.

    python tests/as_other_machines.py              every setting, one after the other
    python tests/as_other_machines.py threads-3    only those that are named

Prints a line for each: how many tests passed and failed, and the seconds. The output of a setting in which something
failed is kept, and its place is printed.
"""

import argparse
import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
# What computes with models, activations, probes and statistics.
NUMBERS = (
    "tests/answer/test_samples.py",
    "tests/choose",
    "tests/detect/test_detector.py",
    "tests/detect/test_methods.py",
    "tests/detect/test_reweight.py",
    "tests/engine/test_door.py",
    "tests/engine/test_engine.py",
    "tests/engine/test_openings.py",
    "tests/engine/test_trial.py",
    "tests/experiments/test_experiments.py",
    "tests/experiments/test_saliency.py::test_flows_are_what_autograd_says_of_the_models_own_weights",
    "tests/experiments/test_saliency.py::test_flows_are_what_the_loss_does_when_a_weight_is_nudged",
    "tests/experiments/test_saliency.py::test_batches_of_mixed_lengths_say_what_single_examples_say",
    "tests/experiments/test_two_pathways.py",
    "tests/extract",
    "tests/probe",
    "tests/summarise/test_statistics.py",
)
# What reads and writes texts and files, draws, and runs the workflow.
FILES = (
    "tests/answer/test_prompts.py",
    "tests/draw/test_figures.py::test_files_hold_real_text_and_are_the_same_twice",
    "tests/files",
    "tests/models/test_fetch.py",
    "tests/questions/test_questions.py",
    "tests/text",
    "tests/workflow/test_portable.py",
    "tests/workflow/test_portable.py::test_a_run_answers_questions_and_keeps_states",  # by its name, as it is slow
)
CAPABILITIES = ("DEFAULT", "AVX2", "AVX512")  # as ATen names them, each with what those before it have
NOBODY = pwd.getpwnam("nobody")
BECOME_NOBODY = ("setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups")
ONLY_READ = "-all,+dac_read_search"
MAY_READ_ALL = (f"--inh-caps={ONLY_READ}", f"--ambient-caps={ONLY_READ}", f"--bounding-set={ONLY_READ}")


@dataclass(frozen=True)
class Setting:
    """How tests are run: `environment` is added to ours, and what is None there is taken out of it."""

    tests: tuple[str, ...]
    environment: dict[str, str | None]
    umask: int = -1  # ours
    as_nobody: bool = False
    hindrance: Callable[[], str | None] = field(default=lambda: None)  # why this machine cannot be like that


def lacks(capability: str) -> Callable[[], str | None]:
    def hindrance() -> str | None:
        own = torch.backends.cpu.get_cpu_capability()
        highest = CAPABILITIES.index(own) if own in CAPABILITIES else 0
        if CAPABILITIES.index(capability) <= highest:
            return None
        return f"this processor has {own} and not {capability}"

    return hindrance


def not_x86() -> str | None:
    machine = platform.machine()
    return None if machine in ("x86_64", "AMD64") else f"MKL is not used on {machine}"


def no_nobody() -> str | None:
    return None if before_nobody() else "only root can become another user, and only with setpriv"


def no_sysfs() -> str | None:
    return None if Path("/sys/kernel").is_dir() else "no folder is known here that not even root can write to"


def threads(count: int) -> dict[str, str]:
    """Passive: where there are fewer cores, threads that wait do not take them from those that work."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")
    return dict.fromkeys(names, str(count)) | {"OMP_WAIT_POLICY": "PASSIVE"}


def aten(capability: str) -> Setting:
    """Torch's own kernels with the instructions of a capability."""
    hindrance = lacks(capability)
    return Setting(NUMBERS, {"ATEN_CPU_CAPABILITY": capability.lower(), **threads(1)}, hindrance=hindrance)


def libraries(onednn: str, mkl: str, openblas: str) -> Setting:
    """Matrix libraries with no newer instructions than these; OpenBLAS is numpy's."""
    names = {"ONEDNN_MAX_CPU_ISA": onednn, "MKL_ENABLE_INSTRUCTIONS": mkl, "OPENBLAS_CORETYPE": openblas}
    return Setting(NUMBERS, {**names, **threads(1)}, hindrance=not_x86)


HOMES = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HF_HOME", "MPLCONFIGDIR")
SETTINGS = {
    "aten-default": aten("DEFAULT"),
    "aten-avx2": aten("AVX2"),
    "aten-avx512": aten("AVX512"),
    "libraries-sse41": libraries("SSE41", mkl="SSE4_2", openblas="Nehalem"),  # MKL has no lower level
    "libraries-avx2": libraries("AVX2", mkl="AVX2", openblas="Haswell"),
    "threads-1": Setting(NUMBERS, threads(1)),
    "threads-2": Setting(NUMBERS, threads(2)),
    "threads-3": Setting(NUMBERS, threads(3)),
    "locale-c": Setting(FILES, {"LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "zone-kiritimati": Setting(FILES, {"TZ": "<+14>-14"}),  # 14 hours ahead of UTC; needs no table of zones
    "umask-077": Setting(FILES, {}, umask=0o077),
    "user-nobody": Setting(FILES, {"HOME": NOBODY.pw_dir}, as_nobody=True, hindrance=no_nobody),
    "home-read-only": Setting(FILES, {"HOME": "/sys/kernel", **dict.fromkeys(HOMES)}, hindrance=no_sysfs),
}


def before_nobody() -> tuple[str, ...]:
    """The words before a command that `nobody` runs; none where that is impossible.

    If Python lies where others may not look, as in root's home, nobody may read everything, but still writes nothing.
    """
    starts_itself = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    for words in (BECOME_NOBODY, (*BECOME_NOBODY, *MAY_READ_ALL)):
        try:
            done = subprocess.run([*words, sys.executable, "-c", starts_itself], capture_output=True)
        except FileNotFoundError:
            return ()
        if done.returncode == 0:
            return words
    return ()


def copy_for_nobody(folder: Path) -> Path:
    """A copy of the checkout that belongs to nobody, as does the folder that it is in."""
    leave_out = shutil.ignore_patterns(".git", ".venv", ".snakemake", "results", "__pycache__")
    copy = shutil.copytree(ROOT, folder / "checkout", symlinks=True, ignore=leave_out)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid, follow_symlinks=False)
    return copy


def run(setting: Setting, folder: Path, log: Path) -> str:
    """Run a setting's tests below a folder, write what they print to a log, and return the last line of that."""
    checkout = copy_for_nobody(folder) if setting.as_nobody else ROOT
    ours = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    for name, first in (("PATH", Path(sys.executable).parent), ("PYTHONPATH", checkout / "workflow")):
        ours[name] = os.pathsep.join([str(first), *filter(None, [os.environ.get(name)])])
    environment = {name: value for name, value in (ours | setting.environment).items() if value is not None}
    command = [*(before_nobody() if setting.as_nobody else ()), sys.executable, "-m", "pytest", "-q"]
    command += [f"--basetemp={folder / 'tests'}", *setting.tests]
    with open(log, "w", encoding="utf-8") as output:
        subprocess.run(command, cwd=checkout, env=environment, umask=setting.umask, stdout=output, stderr=output)
    return log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]


def counted(summary: str, what: str) -> int:
    found = re.search(rf"(\d+) {what}", summary)
    return int(found[1]) if found else 0


def try_setting(name: str) -> bool:
    """Run a setting, say how it went, and whether it went well."""
    setting = SETTINGS[name]
    why = setting.hindrance()
    if why:
        print(f"{name:16} skipped: {why}", flush=True)
        return True
    folder, start = Path(tempfile.mkdtemp(prefix=f"anchorscope-{name}-")), time.monotonic()
    log = Path(tempfile.gettempdir()) / f"anchorscope-{name}.log"
    summary = run(setting, folder, log)
    shutil.rmtree(folder)
    passed, failed = counted(summary, "passed"), counted(summary, "failed") + counted(summary, "errors?")
    well = passed > 0 and failed == 0
    print(f"{name:16} {passed} passed, {failed} failed, {time.monotonic() - start:.0f} s", end="", flush=True)
    print("" if well else f"; see {log}", flush=True)
    return well


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="setting", help=", ".join(SETTINGS))
    names = parser.parse_args().settings or list(SETTINGS)
    if unknown := set(names) - set(SETTINGS):
        parser.error(f"there is no setting {', '.join(sorted(unknown))}; there are {', '.join(SETTINGS)}")
    well = [try_setting(name) for name in names]
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
