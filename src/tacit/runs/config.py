"""`Config`: every setting of one training run, read from a preset or a TOML file and overrides.

Recipes: the most accurate settings known for a kind of data at a given epsilon, by rules of public shape.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from tacit import check
from tacit.attacks import ATTACKS
from tacit.data.answers import AVERAGED
from tacit.data.image_folder import images_in
from tacit.errors import InvalidInput
from tacit.relation import Relation
from tacit.runs.settings import (
    LOOP_SETTINGS,
    METHOD_SETTINGS,
    OPEN,
    SHORT_FORMS,
    StatementSettings,
    TableConfig,
    check_settings,
    known,
    one_of,
    setting,
    switch,
    table_config,
)
from tacit.serialization import toml_table
from tacit.tradeoff import Epsilon

PRESETS = Path(__file__).parent / "presets"
SECTIONS: dict[str, type] = LOOP_SETTINGS | {"statement": StatementSettings} | METHOD_SETTINGS
"""Every section by name: those of the training loop, of the statement and of the methods."""
CANARIES = "canaries"
"""The attack on canaries in the first steps of a run, in the same process."""
AUTO = "auto"
_LOOPS = ("gradient", AUTO)  # methods that can train by the loop
_NAME = re.compile(r"(?!\.)[^/\\\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]{1,200}")
_OWN_MODEL = re.compile(r"(?!.*\.py:)[\w.]+:\w+")


@dataclass(frozen=True)
class Config:
    """Settings of `tacit train`; TOML keys, `--set` and these fields have the same names, and so do the flags of some.

    Settings that belong together stand in a section, a table of its own: [clip], [sampling], [noise] and [validation]
    for the training loop, and one for each method that has settings of its own. `sections` holds those that were given,
    `section` gives any of them, `method_settings` the one of the chosen method. `class_weights` is a table of its own:
    class -> weight > 0 in the loss, 1 where none is given; a gradient is clipped after the weight.

    Attributes:
        dataset: A name that `tacit data` lists, "table" with a [table] section, or "images".
        folder: Of data set "images": a folder of images by class.
        image_size: Of such a folder: pixels of a side, from 8 to 64, to which images are brought.
        image_channels: Of such a folder: 3 for colour, 1 for gray.
        method: gradient (DP-SGD), input, objective, output, ticket, trees or vi; auto chooses between trees and
            gradient.
        model: linear, mlp, convnet, text, recommender, or yours as package.module:Class.
        features: Public features of each record: scattering or mirrored_scattering, patches or patches_as_they_are
            (where mirror images mean something else), two joined by +, words, or none.
        zero_start: The last layer starts from zero.
        average: Decay, in (0, 1), of an exponential mean of the weights over steps, which is released in their
            place.
        hidden: Width of an mlp's hidden layer.
        count_padding: Of model text: padding counts in the mean, as in the paper's code.
        optimizer: sgd, adam, adam_bc (free of the noise in its second moment) or adagrad.
        learning_rate: Step size.
        nonprivate_learning_rate: Step size of the same training without privacy, where no clipping keeps it from
            diverging.
        adam_floor: Of adam_bc: smallest second moment.
        learning_rate_schedule: constant, or linear or cosine down to 0.
        momentum: Momentum of sgd, in [0, 1).
        batch_size: Expected size of a Poisson batch; sampling rate batch_size / n.
        public_size: Declared number of records in place of n; without it n is public, and add_remove is stated as
            zero_out.
        epochs: Expected passes over the data; round(epochs * n / batch_size) steps.
        engine: auto (recorded where that is safe and pays), eager, recorded or compiled.
        precision: float32, or bfloat16 for the forward and backward pass.
        checkpoint_every: Steps between checkpoints; an epoch by default.
        max_physical_batch_size: Most records in memory at once; changes no result.
        clip_norm: Bound on the norm of one record's gradient.
        noise_multiplier: Noise std / clip_norm.
        epsilon: Calibrate the noise to this epsilon instead, by pld at delta.
        delta: delta of the guarantee, below 1/n.
        relation: add_remove, replace_one or zero_out.
        test_records: public or private; by default public for a published data set, private for an own table.
        test_epsilon: What private test records pay for a test result with noise; 0 for none. By default the epsilon
            of the training, and 0 in a run that a registry is charged for.
        attacks: Attack to run: canaries in the first steps, or one on the model.
        confidence: Of the attacks' bounds, in (0, 1).
        init_seed: Public seed of the initial weights, which are data independent.
        unsafe_seed: Seed sampling and noise: reproducible, not private.
        unsafe_delta: Accept a delta of 1/n or more, at which publishing a record may be private.
        unsafe_test_metrics: Results on private test records without noise, which no guarantee covers.
        strict: Values read from private data unpaid are errors, not warnings.
    """

    name: str = "custom"
    chosen: str = ""  # which method "auto" stood for, and why
    dataset: str = "digits"
    folder: str | None = None
    image_size: int = 32
    image_channels: int = 3
    method: str = "gradient"
    model: str = "linear"
    features: str = "none"
    zero_start: bool = setting(False, switch)
    average: float | None = setting(None, OPEN)
    hidden: tuple[int, ...] = (32,)
    count_padding: bool = setting(False, switch)
    optimizer: str = setting("sgd", one_of("sgd", "adam", "adam_bc", "adagrad"))
    learning_rate: float = setting(0.5, check.positive)
    nonprivate_learning_rate: float | None = setting(None, check.positive)
    adam_floor: float = setting(5e-8, check.positive)
    learning_rate_schedule: str = setting("constant", one_of("constant", "linear", "cosine"))
    momentum: float = setting(0.0, partial(check.real, low=0.0, high=1.0, open_high=True))
    batch_size: int = setting(128, check.count)
    public_size: int | None = None
    epochs: float = setting(20.0, partial(check.real, low=0.0, open_low=True, high=1e9))
    engine: str = setting("auto", one_of("auto", "eager", "recorded", "compiled"))
    precision: str = setting("float32", one_of("float32", "bfloat16"))
    checkpoint_every: int | None = setting(None, check.count)
    max_physical_batch_size: int | None = setting(None, check.count)
    clip_norm: float = setting(1.0, check.positive)
    noise_multiplier: float | None = setting(None, check.positive)
    epsilon: float | None = setting(None, check.positive)
    delta: float = 1e-5
    relation: str = "add_remove"
    test_records: str | None = setting(None, one_of("public", "private"))
    test_epsilon: float | None = setting(None, partial(check.real, low=0.0))
    attacks: tuple[str, ...] = (CANARIES, "loss_threshold")
    confidence: float = setting(0.95, OPEN)
    init_seed: int = setting(0, partial(check.count, minimum=0))
    unsafe_seed: int | None = setting(None, partial(check.count, minimum=0))
    unsafe_delta: bool = setting(False, switch)
    unsafe_test_metrics: bool = setting(False, switch)
    strict: bool = setting(False, switch)
    table: TableConfig | None = None
    class_weights: Mapping[str, float] = field(default_factory=dict)
    sections: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_settings(self)
        self._check_choices()
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise InvalidInput(
                f"noise_multiplier must be given, or epsilon instead; got noise_multiplier={self.noise_multiplier} and "
                f"epsilon={self.epsilon}. Give exactly one."
            )
        needs = {"table": ("a [table] section", self.table), "images": ("a folder", self.folder)}
        for name, (given, value) in needs.items():
            if (self.dataset == name) != (value is not None):
                sentence = f'dataset must be "{name}" exactly when {given} is given; got one without the other.'
                raise InvalidInput(sentence)

    def _check_choices(self) -> None:
        if not _NAME.fullmatch(check.text("name", self.name)):
            raise check.fail("name", "a plain name without / and \\, since a folder is called by it", self.name)
        check.choice("method", self.method, METHOD_SETTINGS)
        if not _OWN_MODEL.fullmatch(str(self.model)):
            check.choice("model", self.model, ("linear", "mlp", "convnet", "text", "recommender"))
        for name, weight in check.instance("class_weights", self.class_weights, Mapping, "a table").items():
            check.positive(f"weight of class {name!r} of [class_weights]", weight)
        for name in ("hidden", "attacks"):
            check.instance(name, getattr(self, name), tuple, "a list")
        for width in self.hidden:
            check.count("hidden", width)
        for attack in self.attacks:
            check.choice("attack", attack, (CANARIES, *ATTACKS))
        if self.method not in _LOOPS:
            if self.section("validation").given:
                raise check.fail("method", "gradient beside private validation", self.method)
            if self.public_size is not None:
                raise check.fail("method", "gradient beside public_size", self.method, "The others derive from n.")
            check.that(self.average is None, "method", "gradient with average", self.method)
        if self.table is not None and self.table.user is not None:
            self._protect_users(self.table.user)
        for part in self.features.split("+") if self.features not in ("none", "words") else ():
            check.choice("features", part, IMAGE_FEATURES)
        Relation.parse(self.relation)
        check.delta(self.delta)
        if self.epsilon is not None:
            Epsilon(self.epsilon, self.delta)

    def _protect_users(self, user: str) -> None:
        """With a user column whole users are sampled; methods that protect records only are refused."""
        hint = "[table] names a user column, and what is protected is a whole user; without it, a record."
        check.that(self.method in _LOOPS, "method", "gradient", self.method, hint)
        given = self.sections.get("sampling")
        if given is None:
            users = SECTIONS["sampling"](type="grouped_poisson", users=user)
            object.__setattr__(self, "sections", {**self.sections, "sampling": users})
        elif given.type != "grouped_poisson" or given.users != user:
            raise check.fail("type of [sampling]", f"grouped_poisson with users = {user!r}", given.type, hint)

    @property
    def execution(self) -> dict[str, Any]:
        """How steps are computed: arguments of `fit` that change no result but its rounding."""
        return {name: getattr(self, name) for name in ("engine", "precision", "max_physical_batch_size")}

    @property
    def method_settings(self) -> Any:
        """The settings of the chosen method: those of its section, or the defaults."""
        return self.section(self.method)

    def section(self, name: str) -> Any:
        """The settings of the section `name`: those that were given, or the defaults."""
        return self.sections[name] if name in self.sections else SECTIONS[name]()

    def settings(self) -> dict[str, Any]:
        """Plain values for the card and the saved TOML, without anything unset and without the noise seed."""
        flat = {key: value for key, value in asdict(self).items() if value is not None and key != "unsafe_seed"}
        given = flat.pop("sections")
        return flat | {name: {key: value for key, value in given[name].items() if value is not None} for name in given}


def preset_names() -> list[str]:
    """The presets that `tacit train` knows."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_config(source: str, overrides: Mapping[str, Any]) -> Config:
    """The settings of a preset or TOML file, each replaced or added where `overrides` has a value that is not None.

    A section's settings are overridden by a table under its name. Overriding `epsilon` drops a preset's noise
    multiplier and the other way round.

    Raises `InvalidInput` for unknown presets and keys (with the nearest name), and for values that break a rule.
    """
    table = _from_toml(Path(source)) if source.endswith(".toml") else _preset(source)
    given = {key: value for key, value in overrides.items() if value is not None}
    check.keys("the overrides", given, _keys())
    for name, other in (("epsilon", "noise_multiplier"), ("noise_multiplier", "epsilon")):
        if name in given and other not in given:
            table.pop(other, None)
    if table.get("method") == AUTO and trains_otherwise(given):
        table["method"] = "gradient"
    for name in given.keys() & SECTIONS.keys():
        values = {key: value for key, value in _section(name, given.pop(name)).items() if value is not None}
        if values:
            given[name] = {**_section(name, table.get(name, {})), **values}
    return config_from_table(table | given)


def _preset(name: str) -> dict[str, Any]:
    every = preset_names()
    if name not in every and Path(name).exists():
        raise check.fail("preset", "one of " + ", ".join(every), name, "A configuration file must end in .toml.")
    return _from_toml(PRESETS / f"{check.choice('preset', name, every)}.toml")


def _from_toml(path: Path) -> dict[str, Any]:
    table = toml_table("configuration", path)
    if isinstance(table.get("table"), dict):
        # A relative path is one from the file on, wherever the command runs.
        table["table"] = {"folder": str(path.resolve().parent)} | table["table"]
    return {"name": path.stem} | table


def config_from_table(table: Mapping[str, Any]) -> Config:
    """The settings in a table of plain values, with a table inside for each section."""
    check.keys("the configuration", table, _keys())
    flat = {key: value for key, value in table.items() if key not in SECTIONS}
    values = known(Config, flat, where="the configuration")
    if not isinstance(values.get("table"), TableConfig | None):
        values["table"] = table_config(_section("table", values["table"]))
    asked = {name: kind for name, kind in SECTIONS.items() if name in table}
    made = {name: kind(**known(kind, _section(name, table[name]), where=f"[{name}]")) for name, kind in asked.items()}
    return Config(**values, sections=made)


def _keys() -> list[str]:
    return [*(each.name for each in fields(Config) if each.name != "sections"), *SECTIONS]


def _section(name: str, value: object) -> Mapping[str, Any]:
    if isinstance(value, str) and name in SHORT_FORMS:
        return {SHORT_FORMS[name]: value}
    return check.instance(name, value, Mapping, f"a [{name}] section")


IMAGES, WORDS, TABLES = "images", "words", "tables"
IMAGE_FEATURES = ("scattering", "mirrored_scattering", "patches", "patches_as_they_are")
KINDS = ("auto", "best", "paper")
RECIPES = {
    "mnist": (IMAGES, {"features": "scattering"}),
    "fashion_mnist": (IMAGES, {"features": "scattering+patches"}),
    "cifar10": (IMAGES, {"features": "mirrored_scattering+patches"}),
    "imdb": (WORDS, {"dataset": "imdb_words"}),
    "kmnist": (IMAGES, {"features": "scattering"}),
    "adult": (TABLES, {}),
    "bank_marketing": (TABLES, {}),
}
"""Preset -> kind of data, and what its features are: mirror images of digits and letters mean something else."""

_KEEPS = frozenset(
    {"epsilon", "delta", "relation", "unsafe_seed", "strict", "attacks", "confidence", "max_physical_batch_size"}
    | {"name", "test_records", "test_epsilon", "unsafe_test_metrics", "statement"}
)
"""Settings that say what is promised and measured, not how it is trained."""


def trains_otherwise(settings: Iterable[str]) -> bool:
    """Whether one of these settings, by name, says how it is trained: then nothing is chosen by rule."""
    return bool(set(settings) - _KEEPS - {"trees"})


_LEVELS = (0.7, 1.5)  # the epsilons up to which smaller steps are better
# Epochs, learning rate and clip norm up to each, and above.
_CHOSEN = {
    IMAGES: ((20, 1.0, 0.1), (20, 2.0, 0.1), (40, 4.0, 0.05)),
    WORDS: ((20, 10.0, 0.5), (20, 20.0, 0.5), (20, 40.0, 0.5)),
}


def recipe_config(source: str, overrides: Mapping[str, Any], recipe: str = "auto") -> Config:
    """Settings of a run by the best recipe, or by the preset as it stands in the paper.

    "auto" takes the best one where an epsilon is given and no setting of the training itself is, or where the data have
    no preset.

    Args:
        source: a preset or TOML file, or a folder of images by class.
        overrides: as `read_config` takes them.
        recipe: "auto", "best" or "paper".

    Raises:
        InvalidInput: as `read_config`; or "best" is asked for data that have no recipe, or without epsilon.
    """
    check.choice("recipe", recipe, KINDS)
    given = {name: value for name, value in overrides.items() if value is not None}
    if Path(source).is_dir():
        return _of_folder(Path(source).resolve(), given)
    known, paper, hint = source in RECIPES, source in preset_names(), "Add --epsilon 3, say."
    if recipe == "best" and not (known and "epsilon" in given):
        hint = f"Recipes, at an epsilon (--epsilon 3), are there for {', '.join(RECIPES)}."
        raise check.fail("recipe", "paper or auto for this", recipe, hint)
    if known and not paper and "epsilon" not in given:
        raise check.fail("epsilon", f"given for {source}, which has a recipe and no preset", None, hint)
    otherwise = paper and recipe == "auto" and given.keys() - _KEEPS
    if recipe == "paper" or not known or "epsilon" not in given or otherwise:
        return read_config(source, overrides)
    kind, own = RECIPES[source]
    epsilon = check.positive("epsilon", given["epsilon"])
    return config_from_table({"name": source, "dataset": source, **trained_as(kind, epsilon), **own, **given})


def _of_folder(path: Path, given: Mapping[str, Any]) -> Config:
    """Settings for a folder of images: batches of at most a quarter of the records, delta below 1 / n.

    Patches beside scattering, both with mirror images, for colour; scattering alone for gray, where letters are likely.
    """
    check.that("epsilon" in given, "epsilon", "given for a folder of images", None, "Add --epsilon 3, say.")
    records = check.count("images in DIR", images_in(path), minimum=8)
    table = trained_as(IMAGES, check.positive("epsilon", given["epsilon"]))
    table |= {"batch_size": min(table["batch_size"], records // 4), "delta": min(1e-5, float(records) ** -1.1)}
    features = RECIPES["cifar10"][1]["features"] if given.get("image_channels", 3) == 3 else "scattering"
    table |= {"dataset": "images", "folder": str(path), "name": path.name, "features": features}
    return config_from_table({**table, **given})


def trained_as(kind: str, epsilon: float) -> dict[str, Any]:
    """Settings of the linear model on features of images or words; of tables the method that a rule chooses.

    Those of images are chosen on KMNIST and CIFAR-100 with the noise of 60,000 records, those of words on a part of
    IMDb's training reviews with that of all (`benchmarks/recipe_constants.py`).

    Args:
        kind: `IMAGES`, `WORDS` or `TABLES`.
        epsilon: > 0.

    Example:
        >>> trained_as("images", 3.0)["epochs"], trained_as("images", 1.0)["epochs"]
        (40, 20)
    """
    if kind == TABLES:
        return {"method": AUTO, "delta": 1e-6}
    epochs, learning_rate, clip_norm = _CHOSEN[kind][bisect_left(_LEVELS, epsilon)]
    shared = {**AVERAGED, "delta": 1e-5, "epochs": epochs, "learning_rate": learning_rate, "clip_norm": clip_norm}
    if kind == IMAGES:
        return shared | {"batch_size": 4096, "nonprivate_learning_rate": 0.002}
    return shared | {"batch_size": 6250, "nonprivate_learning_rate": 8.0, "features": "words"}
