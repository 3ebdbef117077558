"""Means with intervals: what every series of every figure is made of."""

import zlib

import numpy as np
import polars as pl

from anchorscope.rules import ROLES, role_columns

ANCHORS = ("question", "answer", "all", "gap")  # gap: question minus answer
UNIT = ["component", "position", "intervention"]


def summarise(delta: pl.DataFrame, layers: pl.DataFrame, draws: int, seed: int) -> pl.DataFrame:
    """One row a component, position, intervention, rule, anchor and layer of one model on one dataset."""
    weights = bootstrap_weights(delta["cluster"].unique().sort().to_list(), draws, seed)
    tables = []
    for (component, position, intervention), unit in sorted(delta.group_by(UNIT), key=lambda item: item[0]):
        ordered = unit.sort("layer", "id")
        clusters = ordered.filter(pl.col("layer") == 0)["cluster"].to_numpy()
        for rule in ROLES:
            table = summarise_rule(_roles(ordered, rule), clusters, weights)
            tables.append(
                table.with_columns(
                    component=pl.lit(component),
                    position=pl.lit(position),
                    intervention=pl.lit(intervention),
                    rule=pl.lit(rule),
                )
            )
    return with_auc(pl.concat(tables), layers)


def _roles(unit: pl.DataFrame, rule: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """(question_anchored, delta P) of each role, [layers, examples]; roles that were not measured are left out."""
    layers = unit["layer"].n_unique()
    pairs = []
    for columns in role_columns(rule):
        if all(unit[column].null_count() == 0 for column in columns):
            anchored, delta = (unit[column].to_numpy().reshape(layers, -1) for column in columns)
            pairs.append((anchored, delta.astype(np.float64)))
    return pairs


def bootstrap_weights(clusters: list[str], draws: int, seed: int) -> dict[str, np.ndarray]:
    """How often each cluster is drawn in each resample: cluster -> [draws]."""
    names = sorted(clusters)
    generator = np.random.default_rng([seed, zlib.crc32("\n".join(names).encode())])
    counts = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
    return {name: counts[:, index].astype(np.float64) for index, name in enumerate(names)}


def summarise_rule(
    pairs: list[tuple[np.ndarray, np.ndarray]], clusters: np.ndarray, weights: dict[str, np.ndarray]
) -> pl.DataFrame:
    """Group sizes, means and 95 % intervals by anchor and layer, averaged over roles."""
    drawn = np.stack([weights[cluster] for cluster in clusters], axis=1)  # [draws, examples]
    sizes, means, resampled = {}, {}, {}
    once = np.ones((1, drawn.shape[1]))  # every example exactly once
    for anchor in ("question", "answer", "all"):
        groups = [(_inside(anchor, anchored), delta) for anchored, delta in pairs]
        sizes[anchor] = np.mean([mask.sum(1) for mask, _ in groups], axis=0)
        means[anchor] = np.mean([_means(once, mask, delta)[0] for mask, delta in groups], axis=0)
        resampled[anchor] = np.mean([_means(drawn, mask, delta) for mask, delta in groups], axis=0)
    sizes["gap"] = sizes["all"]
    means["gap"] = means["question"] - means["answer"]
    resampled["gap"] = resampled["question"] - resampled["answer"]
    return pl.concat([_rows(anchor, sizes, means, resampled) for anchor in ANCHORS])


def _inside(anchor: str, anchored: np.ndarray) -> np.ndarray:
    return {"question": anchored, "answer": ~anchored, "all": np.ones_like(anchored)}[anchor]


def _means(drawn: np.ndarray, mask: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Group means [draws, layers] under resampling weights [draws, examples]; NaN where a group is empty."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return (drawn @ (mask * delta).T) / (drawn @ mask.T.astype(np.float64))


def _rows(anchor: str, sizes: dict, means: dict, resampled: dict) -> pl.DataFrame:
    low, high = interval(resampled[anchor])
    smallest = np.minimum(sizes["question"], sizes["answer"]) if anchor == "gap" else sizes[anchor]
    known = smallest >= 2  # an interval needs two examples
    return pl.DataFrame(
        {
            "anchor": [anchor] * len(low),
            "layer": np.arange(len(low), dtype=np.int16),
            "n": np.rint(sizes[anchor]).astype(np.int64),
            "delta_p": means[anchor],
            "low": np.where(known, low, np.nan),
            "high": np.where(known, high, np.nan),
        }
    ).with_columns(pl.col("delta_p", "low", "high").fill_nan(None))


def interval(resampled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The central 95 % of resampled means [draws, ...], draws with an empty group left out."""
    ordered = np.sort(resampled, axis=0)  # NaN last
    count = np.isfinite(ordered).sum(0)

    def at(share: float) -> np.ndarray:
        place = share * (count - 1).clip(min=0)
        below = np.floor(place).astype(int)
        above = np.minimum(below + 1, (count - 1).clip(min=0))
        lower = np.take_along_axis(ordered, below[None], 0)[0]
        upper = np.take_along_axis(ordered, above[None], 0)[0]
        return lower + (place - below) * (upper - lower)

    return at(0.025), at(0.975)


def with_auc(table: pl.DataFrame, layers: pl.DataFrame) -> pl.DataFrame:
    """Add the AUC of the layer's probe over all examples, clean and under the row's intervention."""
    keys = ["component", "position", "layer"]
    clean = layers.filter(pl.col("intervention") == "clean").select(*keys, auc_clean="auc")
    changed = layers.select(*keys, "intervention", auc_intervened="auc")
    return table.join(clean, on=keys, how="left", maintain_order="left").join(
        changed, on=[*keys, "intervention"], how="left", maintain_order="left"
    )
