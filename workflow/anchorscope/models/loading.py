"""From a manifest to a tokenizer and a model in memory, on the hardware that is there and in the dtype that suits it.

float32 rounds less, and `auto` takes it where it costs little time.
"""

import platform
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

from anchorscope.files.bundled import run_command
from anchorscope.files.faults import reason_of
from anchorscope.files.logs import log
from anchorscope.models.checks import (
    check_computes,
    check_loaded,
    check_shapes,
    check_weights_finite,
    naming,
    read_object,
)
from anchorscope.models.gpus import give_back, gpus, take
from anchorscope.models.manifest import Manifest, check_same, check_unchanged, tokenizer_hash
from anchorscope.models.sizes import (
    FOR_SHARDS,
    comfortable,
    gpus_needed,
    loader_of,
    multiplied,
    parameters,
    shapes_in_files,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # takes seconds to import, and describing a model does not need it

# A tokenizer is made from one of these. Without them the library makes one up that knows only its special tokens.
TOKENIZER_SOURCES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
BEGINNING_FAMILIES = ("gemma",)  # whose answers are noise without a beginning-of-text token
# What a run computes per question: tokens of the answer with those before it, and of five passes on shared prefixes.
NEW_TOKENS, TOKENS_ANSWERED, TOKENS_EXTRACTED = 32, 20, 90
OPERATIONS_PER_WEIGHT = 2 * (NEW_TOKENS + TOKENS_ANSWERED + TOKENS_EXTRACTED)  # of matrix products, per question
# Per question, what a whole run on one H200 takes besides matrix products: docs/performance.md, "float32 or bfloat16".
SECONDS_BESIDE = 0.02
LONGER = 0.5  # how much longer a run in float32 may take
REACHED = 0.7  # the share of a GPU's best float32 rate that a run's matrix products reach
CLOCK = 1.7e9  # of GPUs whose own is not known
OLDER = ((7, 0), (7, 2), (7, 5), (8, 0))  # capabilities with 64 float32 units per multiprocessor; others have 128


def read_config(folder: Path) -> PreTrainedConfig:
    """A model's config. Code from its repository is refused; otherwise the library would ask the user about it."""
    file = folder / "config.json" if folder.is_dir() else folder
    with naming(f"{file.resolve()} cannot be read as a model's config"):
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)


def load_tokenizer(folder: Path | str, name: str) -> PreTrainedTokenizerBase:
    """The tokenizer in the folder of the model `name`."""
    gone = sorted(file.name for file in Path(folder).iterdir() if not file.exists())
    if gone:
        raise FileNotFoundError(
            f"{', '.join(gone)} in {folder} lead to files that are gone (was a cache cleared?); "
            f"run `{run_command('--force', f'results/models/{name}.json')}` with the same config."
        )
    if not any((Path(folder) / file).exists() for file in TOKENIZER_SOURCES):
        raise FileNotFoundError(
            f"The model folder of {name} has no tokenizer; put its tokenizer.json and tokenizer_config.json there."
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        tokenizer("x")  # some settings are looked at only now
    except Exception as error:  # whatever its files make the library say; some messages advise to run foreign code
        reason = (
            "it needs code of its own, which is never run" if "trust_remote_code" in str(error) else reason_of(error)
        )
        raise ValueError(f"The tokenizer of {name} cannot be loaded: {reason}.") from error
    if not tokenizer.is_fast:
        raise ValueError(f"The tokenizer of {name} has no offset mapping (tokenizer.json is missing).")
    if _wants_beginning(Path(folder)):
        _add_beginning(tokenizer)
    return tokenizer


def _wants_beginning(folder: Path) -> bool:
    """Whether the model was trained with a token at the beginning of every text: its files say so, or its family."""
    settings = folder / "tokenizer_config.json"
    says = settings.exists() and read_object(settings).get("add_bos_token") is True
    return says or str(read_object(folder / "config.json").get("model_type")).startswith(BEGINNING_FAMILIES)


def _add_beginning(tokenizer: PreTrainedTokenizerBase) -> None:
    """Let the tokenizer put its beginning-of-text token before every text, if it does not do so already."""
    mark, number = tokenizer.bos_token, tokenizer.bos_token_id
    if mark is not None and tokenizer("x")["input_ids"][0] != number:
        log.info("the tokenizer does not begin texts with %s, as the model was trained; it is added", mark)
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=[mark, "$A"], pair=[mark, "$A", "$B"], special_tokens=[(mark, number)]
        )


def load_fetched_tokenizer(manifest: Manifest) -> PreTrainedTokenizerBase:
    """The tokenizer of a model, as it was when the model was fetched."""
    tokenizer = load_tokenizer(manifest.path, manifest.name)
    check_same(manifest, "tokenizer", then=manifest.tokenizer, now=tokenizer_hash(tokenizer))
    return tokenizer


class Choice(NamedTuple):
    """A dtype, and half a sentence on why it was taken."""

    dtype: torch.dtype
    why: str


def choose_dtype(asked: str, device: torch.device, config: PreTrainedConfig) -> Choice:
    """The dtype that was asked for; where that is `auto`, float32 unless bfloat16 saves a third of the run's time."""
    if asked != "auto":
        return Choice(getattr(torch, asked), "the config asks for it")
    if device.type != "cuda":
        if has_matrix_units():
            return Choice(torch.bfloat16, "this processor has matrix units for it")
        return Choice(torch.float32, "this processor has no matrix units for bfloat16")
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        return Choice(torch.float32, "this GPU does not multiply bfloat16")
    most = largest_in_float32(torch.cuda.get_device_properties(device))
    count = multiplied(config)
    why = f"{count / 1e9:.2g} billion weights to multiply; up to {most / 1e9:.2g}, float32 takes little longer here"
    return Choice(torch.float32 if count <= most else torch.bfloat16, why)


def largest_in_float32(gpu: Any) -> float:
    """How many weights a model may multiply for a run in float32 to take at most half as long again on such a GPU."""
    return LONGER * SECONDS_BESIDE * REACHED * float32_rate(gpu) / OPERATIONS_PER_WEIGHT


def float32_rate(gpu: Any) -> float:
    """The operations per second that a GPU computes at best in float32; `gpu` is what torch knows of it."""
    units = 64 if (gpu.major, gpu.minor) in OLDER else 128
    return 2 * units * gpu.multi_processor_count * (getattr(gpu, "clock_rate", 0) * 1e3 or CLOCK)


def has_matrix_units() -> bool:
    """Whether this processor is an x86 with AMX. Torch has only a private way to ask, which may be gone some day."""
    ask = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return ask is not None and ask()


def load_model(manifest: Manifest, dtype: str, threads: int) -> "PreTrainedModel":
    """Load a model for inference on as many GPUs as hold it, or on `threads` CPU threads."""
    torch.set_num_threads(threads)
    check_unchanged(manifest)  # before a GPU is taken
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = read_config(Path(manifest.path))
    choice = choose_dtype(dtype, device, config)
    log.info("%s computes in %s: %s", manifest.name, choice.dtype, choice.why)
    if device.type == "cuda":
        model = _on_gpus(manifest, choice.dtype, config)
    else:
        model = by_column(_load_on(manifest, choice.dtype, device))
    model.dtype_because = cast(Any, choice.why)
    places = sorted({str(parameter.device) for parameter in model.parameters()})
    log.info("%s is on %s as %s", manifest.name, ", ".join(places), model.dtype)
    check_computes(model.eval().requires_grad_(False), manifest.name)
    return model


def _on_gpus(manifest: Manifest, dtype: torch.dtype, config: PreTrainedConfig) -> "PreTrainedModel":
    """Load a model on as many GPUs as hold it, or part of one, kept until this process ends or calls `leave_gpus`."""
    sizes, weights = [gpu.total_memory for gpu in gpus()], parameters(config) * dtype.itemsize
    held = take(gpus_needed(weights, min(sizes)), comfortable(weights))
    first = min(held)
    torch.cuda.set_device(first)
    if len(held) == 1:
        model = _load_on(manifest, dtype, torch.device("cuda", first))
    else:
        model = _load_across(manifest, dtype, {index: int(FOR_SHARDS * sizes[index]) for index in sorted(held)})
    model.held = cast(Any, held)
    return model


def by_column(model: "PreTrainedModel") -> "PreTrainedModel":
    """Turn the layers' weights in memory, not in meaning: a processor's matrix products are a few percent faster so.

    Output embeddings stay: they may be the input embeddings, whose rows are looked up. Half precision stays, too: its
    products bring weights into an order of their own.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not model.get_output_embeddings():
            weight = module.weight.data
            if type(weight) is Tensor and weight.dtype == torch.float32:  # quantised ones are of other kinds
                module.weight.data = weight.t().contiguous().t()
    return model


def leave_gpus(model: "PreTrainedModel") -> None:
    """Let other jobs have the model's GPUs while this one goes on without it: its weights are gone."""
    held = cast(dict, getattr(model, "held", {}))
    if held:
        nn.Module.to(model, "meta")  # a model on several GPUs has a `to` of its own, which refuses
        give_back(held)


def _load_on(manifest: Manifest, dtype: torch.dtype, device: torch.device) -> "PreTrainedModel":
    if manifest.weights == "random":
        seed = manifest.source["random"]["seed"]
        return random_model(Path(manifest.path), seed=seed, dtype=dtype, device=device)
    return _trained(manifest, dtype, device_map={"": device})


def _load_across(manifest: Manifest, dtype: torch.dtype, room: dict[int, int]) -> "PreTrainedModel":
    """Spread a model over several GPUs; `room` is how many bytes of weights each may hold."""
    if manifest.weights == "random":
        raise RuntimeError(f"Random weights are drawn on one GPU, and {manifest.name} needs {len(room)}.")
    model = _trained(manifest, dtype, device_map="auto", max_memory=room)
    if not set(cast(dict, model.hf_device_map).values()) <= set(room):
        raise RuntimeError(f"{manifest.name} does not fit on {len(room)} GPUs of this size; use larger ones.")
    return model


def _trained(manifest: Manifest, dtype: torch.dtype, **placement: object) -> "PreTrainedModel":
    config = read_config(Path(manifest.path))
    quantised = getattr(config, "quantization_config", None)
    if quantised is None:
        check_shapes(shapes_in_files(Path(manifest.path)), config, manifest.name)
    with naming(_trouble(manifest.name, quantised)):
        loaded: Any = loader_of(config).from_pretrained(
            manifest.path,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # refused below, in one sentence
            output_loading_info=True,
            **placement,
        )
    model, info = loaded
    check_unchanged(manifest)  # nor while they were read
    check_loaded(info, manifest.name)
    check_weights_finite(model, manifest.name)
    return model


def _trouble(name: str, quantised: Any) -> str:
    """What a sentence on files that cannot be loaded begins with; `quantised` is what a config says of its weights."""
    if quantised is None:
        return f"The files of {name} cannot be loaded"
    method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised.quant_method
    return f"{name} is quantised by {getattr(method, 'value', method)}, and its weights cannot be read here"


def random_model(folder: Path, seed: int, dtype: torch.dtype, device: torch.device) -> "PreTrainedModel":
    """A model with the config in a folder and freshly drawn weights, made on the device that it will run on.

    The same seed gives the same weights on the same kind of device in the same dtype.
    """
    config = read_config(folder)
    torch.manual_seed(seed)
    with device:
        model = loader_of(config).from_config(config, dtype=dtype)
    log.info("drew random weights for %s with seed %d", folder.name, seed)
    return model.eval().requires_grad_(False)


def computed_on(model: "PreTrainedModel") -> dict[str, str | int]:
    """The dtype that a model computes in and why, the kind of its devices, and how many CPU threads it may use."""
    kinds = Counter(_kind(device) for device in {parameter.device for parameter in model.parameters()})
    return {
        "dtype": str(model.dtype).removeprefix("torch."),
        "dtype_because": getattr(model, "dtype_because", "it was given so"),
        "device": ", ".join(f"{count} × {kind}" if count > 1 else kind for kind, count in sorted(kinds.items())),
        "threads": torch.get_num_threads(),
    }


def _kind(device: torch.device) -> str:
    if device.type == "cpu":
        return processor()
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name from Linux if it knows one, else from Python, which knows at least its kind."""
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.is_file() else []
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    # x86; POWER; MIPS; some ARM boards; RISC-V. Most ARM machines give only numbers.
    names = [fields.get(field) for field in ("model name", "cpu", "cpu model", "hardware", "uarch")]
    return next(filter(None, [*names, platform.processor(), platform.machine()]), "unknown")
