"""Recipes: the most accurate settings known for a kind of data at a given epsilon, by rules of public shape.

Their constants were looked at in prototypes on the data sets that `docs/accuracy.md` names with each figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit import check
from tacit.data.image_folder import images_in
from tacit.runs.config import Config, config_from_table, read_config

IMAGES, WORDS = "images", "words"
KINDS = ("auto", "best", "paper")
RECIPES = {
    "mnist": (IMAGES, {"features": "scattering"}),
    "fashion_mnist": (IMAGES, {"features": "scattering+patches"}),
    "imdb": (WORDS, {"dataset": "imdb_words"}),
    "kmnist": (IMAGES, {"features": "scattering"}),
}
"""Preset -> kind of data, and what its features are: mirror images of digits and letters mean something else."""

_KEEPS = frozenset(
    {"epsilon", "delta", "relation", "unsafe_seed", "strict", "attacks", "confidence", "max_physical_batch_size"}
    | {"name", "test_records", "test_epsilon", "unsafe_test_metrics"}
)
"""Settings that say what is promised and measured, not how it is trained."""
_LOW = 1.5  # the epsilon up to which fewer and smaller steps are better


def recipe_config(source: str, overrides: Mapping[str, Any], recipe: str = "auto") -> Config:
    """Settings of a run by the best recipe, or by the preset as it stands in the paper.

    "auto" takes the best one where an epsilon is given and no setting of the training itself is.

    Args:
        source: a preset or TOML file, or a folder of images by class.
        overrides: as `read_config` takes them.
        recipe: "auto", "best" or "paper".

    Raises:
        InvalidInput: as `read_config`; or "best" is asked for data that have no recipe, or without epsilon.
    """
    check.choice("recipe", recipe, KINDS)
    if Path(source).is_dir():
        return _of_folder(Path(source), overrides)
    given = {name: value for name, value in overrides.items() if value is not None}
    known = source in RECIPES
    if recipe == "best" and not (known and "epsilon" in given):
        hint = f"Recipes, at an epsilon (--epsilon 3), are there for {', '.join(RECIPES)}."
        raise check.fail("recipe", "paper or auto for this", recipe, hint)
    if recipe == "paper" or not known or "epsilon" not in given or (recipe == "auto" and given.keys() - _KEEPS):
        return read_config(source, overrides)
    kind, own = RECIPES[source]
    epsilon = check.positive("epsilon", given["epsilon"])
    return config_from_table({"name": source, "dataset": source, **trained_as(kind, epsilon), **own, **given})


def _of_folder(path: Path, overrides: Mapping[str, Any]) -> Config:
    """Settings for a folder of images: batches of at most a quarter of the records, delta below 1 / n.

    Patches with their mirror images beside scattering for colour, scattering alone for gray, where letters are likely.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    if "epsilon" not in given:
        raise check.fail("epsilon", "given for a folder of images", None, "Add --epsilon 3, say.")
    records = check.count("images in DIR", images_in(path), minimum=8)
    table = trained_as(IMAGES, check.positive("epsilon", given["epsilon"]))
    table |= {"batch_size": min(table["batch_size"], records // 4), "delta": min(1e-5, float(records) ** -1.1)}
    colour = given.get("image_channels", 3) == 3
    table |= {"dataset": "images", "folder": str(path.resolve()), "name": path.resolve().name}
    return config_from_table(table | {"features": "scattering+patches" if colour else "scattering"} | given)


def trained_as(kind: str, epsilon: float) -> dict[str, Any]:
    """Settings of the linear model on features of images or words.

    Args:
        kind: `IMAGES` or `WORDS`.
        epsilon: > 0.

    Example:
        >>> trained_as("images", 3.0)["epochs"], trained_as("images", 1.0)["epochs"]
        (40, 20)
    """
    low = epsilon <= _LOW
    shared = {"model": "linear", "zero_start": True, "momentum": 0.9, "average": 0.95, "delta": 1e-5}
    if kind == IMAGES:
        steps = {"epochs": 20 if low else 40, "learning_rate": 2.0 if low else 4.0, "batch_size": 4096}
        return shared | steps | {"clip_norm": 0.1, "nonprivate_learning_rate": 0.002}
    steps = {"epochs": 10 if low else 20, "learning_rate": 20.0 if low else 40.0, "batch_size": 2500 if low else 6250}
    return shared | steps | {"features": "words", "clip_norm": 0.5, "nonprivate_learning_rate": 8.0}
