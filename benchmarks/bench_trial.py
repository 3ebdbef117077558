"""What the trial before an extraction costs: the short passes that decide how a model is run, against the whole job.

Takes the folder of a finished run, and extracts some of its shards once more into a temporary folder, with the settings
of the default config. Each job is run as the workflow runs it, and the trial alone on a freshly loaded model.
Processor seconds add up all threads, and depend less than the clock on what else the machine does.
"""

import tempfile
import time
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

from common import arguments, machine, report

from anchorscope.answer.prompts import PromptSet
from anchorscope.engine.door import Engine
from anchorscope.extract.axes import EXACT, HEADLINE, passes_of
from anchorscope.extract.job import EXTRACTION_NEEDS, ExtractSettings, extract_file
from anchorscope.extract.sequences import build_workload
from anchorscope.files.sealed_parquet import read_table
from anchorscope.models.loading import load_fetched_tokenizer, load_model
from anchorscope.models.manifest import Manifest


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """The seconds and processor seconds that `work` takes."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def row(manifest: Path, chosen: Path, settings: ExtractSettings) -> dict:
    """One shard: its trial and its job."""
    examples = read_table(chosen, EXTRACTION_NEEDS)
    described = Manifest.read(manifest)
    tokenizer = load_fetched_tokenizer(described)
    prompts = settings.prompts.built(tokenizer)
    workload = build_workload(tokenizer, prompts, examples, passes=passes_of(EXACT), positions=settings.grid.positions)
    model = load_model(described, settings.dtype, settings.threads)
    trial = spent(
        lambda: Engine(model).prepare(workload.work(settings.grid, model.config.num_hidden_layers, settings.knockout))
    )
    with tempfile.TemporaryDirectory() as folder:
        job = spent(lambda: extract_file(chosen, manifest=manifest, folder=Path(folder) / "x", settings=settings))
    return {
        "dataset": chosen.parent.name,
        "examples": examples.num_rows,
        "trial s": trial[0],
        "job s": job[0],
        "trial, processor s": trial[1],
        "job, processor s": job[1],
        "share": trial[1] / job[1],
    }


def main() -> None:
    options = arguments(
        run={"type": Path, "default": Path(), "help": "the folder that `results` is in"},
        model={"default": "smollm2-135m", "help": "its name in the run"},
        shards={"type": int, "default": 4, "help": "how many to extract"},
        threads={"type": int, "default": 2, "help": "CPU threads"},
    )
    settings = ExtractSettings(
        prompts=PromptSet.bundled("few_shot"),
        grid=HEADLINE,
        dtype="auto",
        threads=options.threads,
        batch_tokens=None,
        knockout=EXACT,
        code="",
    )
    with chdir(options.run):  # a manifest's paths begin there
        files = sorted(Path("results/chosen", options.model).glob("*/*.parquet"))[: options.shards]
        rows = [row(Path("results/models", f"{options.model}.json"), file, settings) for file in files]
    report(rows, machine(), options.record)


if __name__ == "__main__":
    main()
