"""A model's manifest: what later stages need to know about it, and what their outputs are traced back to."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from anchorscope.files.atomic import write_text
from anchorscope.files.identity import read_json

SALMON = "+salmon"  # ends the name of a trained model's twin with random weights


@dataclass(frozen=True)
class Manifest:
    """One model, as results/models/{model}.json describes it."""

    name: str  # as in the config
    source: dict  # as in the config
    path: str  # the folder with its files
    weights: str  # trained or random
    revision: str  # what fixes the weights
    architecture: str
    parameters: int
    layers: int
    width: int
    stored_dtype: str
    tokenizer: str  # a hash of it
    prompt: str  # the style that suits it, chat or few_shot; taken with `prompt: auto`

    @classmethod
    def read(cls, path: Path | str) -> "Manifest":
        """A manifest whose `path` is found from here, wherever the run's folder is."""
        try:
            found = cls(**read_json(path))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is not a model's manifest, such as results/models/mine.json.") from error
        of_run = Path(path).resolve().parents[2:3]  # results/models lie in it
        there = next((folder / found.path for folder in of_run), Path(found.path))
        if there.exists() and not (Path(found.path).exists() and there.samefile(found.path)):
            return replace(found, path=str(there))
        return found

    def write(self, target: Path | str) -> None:
        write_text(target, json.dumps(self.as_json(), indent=2, sort_keys=True) + "\n")

    def as_json(self) -> dict:
        """What the file holds, and what every output made with the model repeats."""
        return asdict(self)
