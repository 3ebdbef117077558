"""Checks of a config before any job starts; each mistake becomes one sentence."""

import copy
import importlib.util
import json
import math
import os
import reprlib
import unicodedata
from collections.abc import Collection, Iterator
from pathlib import Path

from jsonschema import Draft202012Validator, ValidationError, validators

from anchorscope.draw.titles import ALL_OTHERS, CONTROL
from anchorscope.files.arguments import meant_by
from anchorscope.files.bundled import ROOT
from anchorscope.files.faults import LARGEST_TEXT, fault_of_file
from anchorscope.files.identity import package_file, tokenizer_beside

MODEL_SOURCES = ("hub", "path", "gguf", "random")
# What a dataset of each source must have, and what it may have.
SOURCE_KEYS: dict[str, tuple[list[str], list[str]]] = {
    "bundled": ([], []),
    "file": (["path"], []),
    "hub": (["repo", "split", "revision"], ["subset"]),
}
LONGEST = 400  # characters per sentence
MOST_SHARDS = 10_000  # four digits
RAW_SUFFIXES = (".jsonl", ".ndjson", ".csv", ".parquet")
LARGEST_STYLE = 1_000_000  # bytes
BUNDLED = ("workflow", "resources")  # the folder of files that a config may name from wherever it is run


# JSON takes 20.0 for an integer; Python does not.
WHOLE = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda checker, value: type(value) is int)
STRICT = validators.extend(Draft202012Validator, type_checker=WHOLE)


def mistakes(config: dict, schema: dict) -> list[str]:
    """Every mistake in `config`, one sentence each; empty if it can be run."""
    return [_one_line(sentence) for sentence in _mistakes(config, schema)]


def with_bundled_files(config: dict) -> dict:
    """The config with paths of bundled files as they are reached from the run's folder, whose own files come first."""
    reached = copy.deepcopy(config)
    for part, key in _paths(reached):
        path = part.get(key, "")
        bundled = Path(path).parts[: len(BUNDLED)] == BUNDLED
        if bundled and not os.path.lexists(path) and os.path.exists(ROOT / path):
            part[key] = os.path.relpath(ROOT / path)  # relative, so that a finished run can move
    return reached


def _paths(config: dict) -> Iterator[tuple[dict, str]]:
    """The parts of a config that may name a file or folder, each with its key."""
    for model in config["models"].values():
        yield model, "path"
        yield model.get("random", {}), "config"
    for dataset in config["datasets"].values():
        yield dataset, "path"
    yield config, "style"


def _one_line(sentence: str) -> str:
    """A sentence whose quoted values may hold anything, on one line of limited length."""
    line = " ".join(sentence.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


def _mistakes(config: dict, schema: dict) -> Iterator[str]:
    if odd := list(_odd(config, "")):
        yield from odd
        return
    errors = sorted(STRICT(schema).iter_errors(config), key=lambda error: list(map(str, error.path)))
    yield from dict.fromkeys(_sentence(error) for error in errors)
    sound = with_bundled_files(_without(config, errors) if errors else config)
    for name, model in sound["models"].items():
        yield from _model_mistakes(f"models.{name}", model)
    for name, dataset in sound["datasets"].items():
        yield from _dataset_mistakes(f"datasets.{name}", dataset)
    if not errors:
        yield from _mistakes_between_parts(sound, schema)


def _without(config: dict, errors: list[ValidationError]) -> dict[str, dict]:
    """The models and datasets in which the schema found no mistake."""
    wrong = {tuple(error.absolute_path)[:2] for error in errors}
    kinds = [kind for kind in ("models", "datasets") if (kind,) not in wrong and kind in config]
    sound = {kind: {name: one for name, one in config[kind].items() if (kind, name) not in wrong} for kind in kinds}
    return {"models": {}, "datasets": {}} | sound


def _mistakes_between_parts(config: dict, schema: dict) -> Iterator[str]:
    yield from _shard_mistakes(config, schema)
    yield from _headline_mistakes(config, schema)
    yield from _title_mistakes(config)
    for name, figure in config["figures"].items():
        yield from _figure_mistakes(name, figure, config["models"])
    yield from _style_mistakes(config)


def _odd(node: object, where: str, around: tuple[int, ...] = ()) -> Iterator[str]:
    """What the schema does not catch: characters, keys and numbers that nothing takes, and parts within themselves."""
    if id(node) in around:
        yield f"{where} refers to a part of the config that it stands in; write it out."
        return
    if isinstance(node, float) and not math.isfinite(node):
        yield f"{where} is {node}; it must be a finite number."
    if isinstance(node, str):
        yield from (f"{where} is {node!r}, which {fault}" for fault in _faults(node))
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        if isinstance(key, str):
            yield from (f"The key {key!r} in {where or 'the config'} {fault}" for fault in _faults(key))
        elif isinstance(node, dict):
            yield f"The key {key!r} in {where or 'the config'} is not a string; put it in quotes."
        yield from _odd(child, f"{where}.{key}" if where else str(key), (*around, id(node)))


def _faults(text: str) -> Iterator[str]:
    """What is wrong with a name, title or path, whatever it is for."""
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        yield "holds a control character; take it out."
    elif "{" in text or "}" in text:
        yield "holds a curly bracket, which Snakemake takes for a wildcard; take it out."


def _shard_mistakes(config: dict, schema: dict) -> Iterator[str]:
    given = {key: config.get(key, schema["properties"][key]["default"]) for key in ("questions", "shard_size")}
    shards = -(-given["questions"] // given["shard_size"])
    if shards > MOST_SHARDS:
        yield (
            f"questions is {given['questions']} and shard_size {given['shard_size']}, which makes {shards} shards; "
            f"at most {MOST_SHARDS} can be named, so raise shard_size."
        )


def _headline_mistakes(config: dict, schema: dict) -> Iterator[str]:
    """Claims and figures show the headline, so it must be measured."""
    for one, several in (("component", "components"), ("position", "positions")):
        default = schema["properties"]["headline"]["properties"][one]["default"]
        chosen = config.get("headline", {}).get(one, default)
        if chosen not in config.get(several, [chosen]):
            yield (
                f"{several} leaves out {chosen}, the {one} of the headline; name it there, or another under `headline`."
            )


def _sentence(error: ValidationError) -> str:
    where = ".".join(map(str, error.absolute_path)) or "the config"
    value = error.instance
    match error.validator:
        case "additionalProperties":
            known = list(error.schema["properties"])
            unknown = [key for key in value if key not in known]
            meant = meant_by(unknown[0], known)
            hint = f"did you mean '{meant}'?" if meant else f"known keys are {', '.join(known)}."
            return f"Unknown key {', '.join(map(repr, unknown))} in {where}; {hint}"
        case "required":
            missing = [key for key in error.validator_value if key not in value]
            return f"Key {', '.join(map(repr, missing))} is missing in {where}."
        case "type":
            return f"{where} must be of type {error.validator_value}, not {value!r}."
        case "enum":
            known = [one if isinstance(one, str) else json.dumps(one) for one in error.validator_value]
            return f"{where} is {value!r}; it must be one of {', '.join(known)}."
        case "pattern" | "maxLength" | "not" if "propertyNames" in error.absolute_schema_path:
            return (
                f"The name {value!r} in {where} becomes part of file names; use at most 60 letters, digits, '.', '_' "
                "and '-', begin with a letter or digit, and do not repeat one part of it many times."
            )
        case "pattern":
            return f"{where} is {value!r}, which does not have the form {error.validator_value}."
        case "minimum" | "maximum":
            return f"{where} is {value}; its {error.validator} is {error.validator_value}."
        case "uniqueItems":
            twice = [one for index, one in enumerate(value) if one in value[:index]]
            return f"{where} names {', '.join(map(str, twice))} twice."
        case "minProperties" | "minItems" | "minLength":
            return f"{where} is empty; at least one entry is needed."
        case _:
            return f"{where}: {error.message}."


def _model_mistakes(where: str, model: dict) -> Iterator[str]:
    sources = [source for source in MODEL_SOURCES if source in model]
    if len(sources) != 1:
        given = f"has {' and '.join(sources)}" if sources else "has no source"
        yield f"{where} {given}; give exactly one of {', '.join(MODEL_SOURCES)}."
    elif sources == ["hub"] and "revision" not in model:
        yield (
            f"{where} comes from the hub without a pinned `revision`, a commit of 40 hexadecimal digits; "
            f"`git ls-remote https://huggingface.co/{model['hub']} HEAD` prints the newest."
        )
    elif sources != ["hub"] and "revision" in model:
        yield f"{where} has a `revision`, which only a model from the hub can have."
    elif sources == ["gguf"]:
        try:
            package_file(**model["gguf"])
        except FileNotFoundError as error:
            yield f"{where}.gguf: {str(error).removesuffix('.')}; `{_installs(model['gguf']['package'])}` installs it."
    elif sources == ["path"] and not _holds_a_model(Path(model["path"])):
        yield (
            f"{where}.path names {model['path']}, which is no folder with a model's config.json, and no .gguf file"
            f"{_looked_for(model['path'])}."
        )
    elif sources == ["random"] and (fault := _shape_fault(model["random"]["config"])):
        yield f"{where}.random.config names {model['random']['config']}, {fault}."


def _file_fault(file: str, largest: int | None = None) -> str | None:
    """What is wrong with a file that the config names, and where it was looked for; None if nothing is."""
    fault = fault_of_file(file, largest)
    return f"{fault}{_looked_for(file)}" if fault else None


def _looked_for(path: str) -> str:
    return "" if os.path.isabs(path) else f"; it was looked for in the run's folder, {Path.cwd()}"


def _holds_a_model(path: Path) -> bool:
    return not fault_of_file(path if path.suffix == ".gguf" else path / "config.json")


def _installs(package: str) -> str:
    """The command that installs a package, in the version that is known to work, without what it needs for itself."""
    name = package.replace("_", "-")
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return f"pip install --no-deps {next((line for line in locked if line.startswith(f'{name}==')), name)}"


def _shape_fault(file: str) -> str | None:
    """What is wrong with the config of a model with random weights; None if nothing is."""
    if fault := _file_fault(file, LARGEST_TEXT):
        return f"which {fault}"
    for beside in tokenizer_beside(file):
        if fault := fault_of_file(beside, LARGEST_TEXT):
            return f"and {beside} beside it {fault}"
    try:
        config = json.loads(Path(file).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return "which is not JSON"
    if not isinstance(config, dict) or "model_type" not in config:
        return "which has no `model_type` and so is not a transformers config"
    if not _is_named_by_transformers(config["model_type"]):
        return f"whose model_type {reprlib.repr(config['model_type'])} transformers does not know"
    return None


def _is_named_by_transformers(kind: object) -> bool:
    """Whether the installed transformers lists models of this type.

    The lists are read as text, because importing the library would add seconds to every command. What passes here and
    is not a model is refused when it is fetched.
    """
    spec = importlib.util.find_spec("transformers")
    folders = spec.submodule_search_locations or [] if spec else []
    lists = [file for folder in folders for file in Path(folder, "models/auto").glob("*.py")]
    return any(f'"{kind}"' in file.read_text(encoding="utf-8") for file in lists)


def _dataset_mistakes(where: str, dataset: dict) -> Iterator[str]:
    source = dataset["source"]
    needed, optional = SOURCE_KEYS[source]
    missing = [key for key in needed if key not in dataset]
    known = ("path", "repo", "revision", "split", "subset")
    extra = [key for key in known if key in dataset and key not in needed + optional]
    if missing:
        yield f"{where} has source '{source}', which also needs {', '.join(missing)}."
    elif extra:
        yield f"{where} has source '{source}', which does not use {', '.join(extra)}."
    elif source == "bundled" and dataset["layout"] == "own":
        yield f"{where} has source 'bundled', but no bundled set has layout 'own'; use source: file with a path."
    elif source == "file" and (fault := _file_fault(dataset["path"])):
        yield f"{where}.path names {dataset['path']}, which {fault}."
    elif source == "file" and Path(dataset["path"]).suffix not in RAW_SUFFIXES:
        yield f"{where}.path names {dataset['path']}; it must end in {', '.join(RAW_SUFFIXES)}."
    elif source == "file" and dataset["layout"] == "triviaqa" and Path(dataset["path"]).suffix == ".csv":
        yield f"{where} has layout 'triviaqa', whose answers are records, which CSV cannot hold; use JSON Lines."


def _title_mistakes(config: dict) -> Iterator[str]:
    for kind in ("models", "datasets"):
        first: dict[str, str] = {}
        for name, entry in config[kind].items():
            other = first.setdefault(entry["title"], name)
            if other != name:
                yield f"{kind}.{name} has the title of {kind}.{other}; figures could not tell them apart."
            if entry["title"] in (CONTROL, ALL_OTHERS):
                yield f"{kind}.{name} has the title {entry['title']}, which figures use; choose another."


def _figure_mistakes(name: str, figure: dict, known: Collection[str]) -> Iterator[str]:
    unknown = [repr(model) for model in figure["models"] if model not in known]
    if unknown:
        yield f"figures.{name} names the unknown model {', '.join(unknown)}; known models are {', '.join(known)}."


def _style_mistakes(config: dict) -> Iterator[str]:
    if "style" not in config:
        return
    if fault := _file_fault(config["style"], LARGEST_STYLE):
        yield f"style names {config['style']}, which {fault}."
        return
    from anchorscope.draw.style import read_style  # slow to import, and needed only here

    try:
        read_style(config["style"])
    except ValueError as error:
        yield str(error)
