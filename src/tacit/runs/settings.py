"""Settings of the private training loop: the sections [clip], [sampling], [noise] and [validation].

`runs.builders` makes of each what `tacit.training.fit` takes; nothing heavy is imported here.

A setting: one dataclass field that is a TOML key, an argument of `--set` and a documented attribute at once.

Settings of the training methods: one frozen dataclass a method, the keys of its TOML section.

They are apart from `runs/methods/`, which trains, because the command line reads them without loading torch.

Settings of an own table: the [table] section of a configuration.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from tacit import check
from tacit.data.declarations import Declarations
from tacit.data.delimited import TableFormat, table_file
from tacit.errors import InvalidInput, MissingData
from tacit.serialization import tuples

Folder = str | os.PathLike[str]
Rule = Callable[[str, Any], object]
"""A check of `tacit.check`, called with the name of a setting and its value."""
OPEN: Rule = partial(check.probability, open_low=True, open_high=True)


def setting(default: Any, rule: Rule) -> Any:
    """A field with its `default` and the `rule` of its values, but for a default of None; docstrings say what it is."""
    return field(default=default, metadata={"rule": rule})


def one_of(*options: str) -> Rule:
    """The rule of a setting that is one of `options`."""
    return lambda name, value: check.choice(name, value, options)


def switch(name: str, value: Any) -> None:
    """The rule of a setting that is true or false."""
    check.instance(name, value, bool, "true or false")


def check_settings(settings: Any, where: str = "") -> None:
    """Raise `InvalidInput` for a value that breaks the rule of its setting; `where` follows the name in messages."""
    for each in fields(settings):
        rule, value = each.metadata.get("rule"), getattr(settings, each.name)
        if rule is not None and not (value is None and each.default is None):
            rule(f"{each.name}{where}", value)


def known(kind: type, given: Mapping[str, Any], *, where: str, required: Iterable[str] = ()) -> dict[str, Any]:
    """The values `given` for fields of `kind`, lists as tuples; raises `InvalidInput` with the nearest known name.

    Args:
        kind: a frozen dataclass of settings.
        given: values by name.
        where: the place that messages name.
        required: names that must be given.

    Raises:
        InvalidInput: a name is unknown (the message has the nearest known one) or a required one is missing.
    """
    check.keys(where, given, [each.name for each in fields(kind)])
    for name in sorted(set(required) - given.keys()):
        raise check.fail(name, f"given in {where}", None)
    return tuples(given)


SAMPLINGS = (
    *("poisson", "fixed_size", "shuffled", "truncated_poisson", "grouped_poisson", "random_allocation"),
    *("balls_and_bins", "balanced_iteration", "cyclic_poisson", "cyclic_allocation"),
)
NOISE_SHAPES = {"constant": (), "exponential": ("end",), "step": ("factor", "every")}


class _Section:
    """A section whose `type` decides which of its other settings apply."""

    def given(self) -> dict[str, Any]:
        """The settings that were given, without `type`."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "type"}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if value not in (None, {}, ())}


@dataclass(frozen=True)
class ClipSettings(_Section):
    """The [clip] section: the kind of clipping, and the settings that only some kinds have.

    Attributes:
        type: flat, per_layer, groups, automatic, adaptive or batch_mean.
        quantile: Of adaptive: share of the records to be left unclipped.
        learning_rate: Of adaptive: step size of the clipping norm.
        count_noise: Of adaptive: noise of the count, in units of noise_multiplier.
        stability: Of automatic: added to each gradient norm, so that small ones stay small.
    """

    type: str = "flat"
    bounds: Mapping[str, float] = field(default_factory=dict)
    quantile: float | None = None
    learning_rate: float | None = None
    count_noise: float | None = None
    stability: float | None = None


@dataclass(frozen=True)
class SamplingSettings(_Section):
    """The [sampling] section: how batches are drawn, and thus what one privacy unit is.

    Attributes:
        type: poisson, fixed_size, shuffled, truncated_poisson, grouped_poisson, random_allocation, balls_and_bins,
            balanced_iteration, cyclic_poisson or cyclic_allocation.
        cap: Of truncated_poisson: the largest batch.
        users: Of grouped_poisson: the feature that says which user a record belongs to.
        groups: Of the cyclic ones: groups that take turns; the bands of the noise by default.
        average: Of grouped_poisson: the mean of a user's gradients instead of their sum.
    """

    type: str = setting("poisson", one_of(*SAMPLINGS))
    cap: int | None = None
    users: str | None = None
    groups: int | None = None
    average: bool | None = None

    def __post_init__(self) -> None:
        check_settings(self, " of [sampling]")
        kinds: dict[str, tuple[str, ...]] = {"truncated_poisson": ("cap",), "grouped_poisson": ("users", "average")}
        kinds |= dict.fromkeys(("cyclic_poisson", "cyclic_allocation"), ("groups",))
        _check_settings(self, "sampling", kinds.get(self.type, ()))


@dataclass(frozen=True)
class NoiseSettings(_Section):
    """The [noise] section: correlation over the steps, or the schedule of noise_multiplier from the first step on.

    Attributes:
        correlation: independent, banded:B, banded:auto, blt:B, square_root or tree.
        type: constant, exponential or step.
        end: Of exponential: the noise multiplier of the last step.
        factor: Of step: factor by which the noise multiplier changes.
        every: Of step: steps between two changes.
    """

    correlation: str = setting("independent", check.text)
    type: str = setting("constant", one_of(*NOISE_SHAPES))
    end: float | None = None
    factor: float | None = None
    every: int | None = None

    def __post_init__(self) -> None:
        check_settings(self, " of [noise]")
        _check_settings(self, "noise", NOISE_SHAPES[self.type])

    def given(self) -> dict[str, Any]:
        """The settings of the schedule that were given."""
        return {name: value for name, value in super().given().items() if name != "correlation"}


@dataclass(frozen=True)
class ValidationSettings:
    """The [validation] section: records that no step trains on, to stop a run or to choose its weights by.

    Of method "gradient". The records set aside pay for what is told of them, in parallel with the training.

    Attributes:
        type: none, or private: a part of the training records.
        epsilon: What is told of them costs them this; that of the run by default.
        noise: Of noisy, instead of epsilon: standard deviation of each sum, in units.
        share: Probability with which a record, or a user, is set aside, in (0, 1).
        checkpoint: noisy: a score with noise after each epoch; exponential or permute_and_flip: only a choice.
        patience: Of noisy: epochs without a better score after which the run ends.
        best: Of noisy: end with the weights of the best epoch.
        tolerance: Of a regression: the score is the share of predictions at most this far off.
        error_bound: Of a regression: the score is the mean squared error, each one clipped to this.
    """

    type: str = setting("none", one_of("none", "private"))
    epsilon: float | None = setting(None, check.positive)
    noise: float | None = setting(None, check.positive)
    share: float = setting(0.1, OPEN)
    checkpoint: str = setting("noisy", one_of("noisy", "exponential", "permute_and_flip"))
    patience: int | None = setting(None, check.count)
    best: bool = setting(False, switch)
    tolerance: float | None = setting(None, check.positive)
    error_bound: float | None = setting(None, check.positive)

    def __post_init__(self) -> None:
        check_settings(self, " of [validation]")
        for name, other in (("noise", "epsilon"), ("tolerance", "error_bound")):
            if getattr(self, name) is not None and getattr(self, other) is not None:
                raise check.fail(f"{name} of [validation]", f"left out beside {other}", getattr(self, name))
        if self.checkpoint != "noisy" and (self.patience is not None or self.noise is not None or self.best):
            raise check.fail("checkpoint of [validation]", "noisy for patience, noise and best", self.checkpoint)

    @property
    def given(self) -> bool:
        """Whether records are set aside."""
        return self.type != "none"


NO_VALIDATION = ValidationSettings()
"""The [validation] section of a run that sets nothing aside."""

SHORT_FORMS = {"sampling": "type", "noise": "correlation", "validation": "type"}
"""The setting of a section that its name alone stands for: `noise = "banded:8"`, `--noise banded:8`."""

LOOP_SETTINGS: dict[str, type] = {
    "clip": ClipSettings,
    "sampling": SamplingSettings,
    "noise": NoiseSettings,
    "validation": ValidationSettings,
}
"""Section of the training loop by name."""


def _check_settings(section: Any, name: str, own: tuple[str, ...]) -> None:
    """Raise `InvalidInput` unless all of `own` but `average` and `groups`, and nothing besides, was given."""
    given = section.given()
    for foreign in sorted(given.keys() - set(own)):
        raise InvalidInput(f"type of [{name}] must be one that has {foreign}; got {section.type!r}.")
    for missing in sorted(set(own) - {"average", "groups"} - given.keys()):
        raise check.fail(f"{missing} of [{name}]", f"given for {section.type}", None)


@dataclass(frozen=True)
class GradientSettings:
    """The [gradient] section: empty, since the settings of the training loop are keys of the configuration itself."""


@dataclass(frozen=True)
class ObjectiveSettings:
    """The [objective] section: noise in the function that is minimised.

    Attributes:
        regularization: lambda >= 0; by default from n, the width and the target.
        norm_bound: Public bound on a row's norm; by default what the bounds allow.
    """

    regularization: float | None = None
    norm_bound: float | None = None


@dataclass(frozen=True)
class TicketSettings:
    """The [ticket] section; epsilon, delta, epochs, batch_size, clip_norm and learning_rate are the run's own.

    Modes: "T1", a ticket of public origin; "T2", pruned from a privately trained dense network; "T3", the same, chosen
    on a private validation part; "T4", that with parallel composition; "paper", as published, which is only claimed.

    Attributes:
        mode: paper, T1, T2, T3 or T4.
        origin: Of T1: random, start_magnitude, synflow, or a public data set.
        density: Of T1: share of weights kept; the largest allowed, for a public data set.
        densities: Of T2 to T4: a density to choose from.
        search_epochs: Of T2 to T4: epochs of the dense private network.
        penalty: Accuracy, in [0, 1], that a ticket with all its weights loses in the choice.
        validation_share: Of T3 and T4: probability that a record is kept for the choice.
        selection: exponential or permute_and_flip.
        rounds: Rounds of magnitude pruning (paper, and T1 with a data set).
        iterations: SGD steps of a round.
        folder: Folder of tickets that runs with the same start and data share; by default the run's.
    """

    mode: str = setting("T2", one_of("paper", "T1", "T2", "T3", "T4"))
    origin: str = "random"
    density: float = setting(0.1, partial(check.probability, open_low=True))
    densities: tuple[float, ...] = (0.5, 0.25, 0.1, 0.05, 0.02)
    search_epochs: float = 10.0
    penalty: float = 0.0
    validation_share: float = 0.2
    selection: str = setting("exponential", one_of("exponential", "permute_and_flip"))
    rounds: int = setting(12, check.count)
    iterations: int = setting(5000, check.count)
    folder: str = ""

    def __post_init__(self) -> None:
        check_settings(self, " of [ticket]")
        if not isinstance(self.densities, tuple) or not self.densities:
            raise check.fail("densities of [ticket]", "a list with at least one value", self.densities)


@dataclass(frozen=True)
class TreesSettings:
    """The [trees] section; epsilon, delta and relation are the run's own.

    Attributes:
        trees: Number of trees.
        depth: Questions of a tree, at most 12; it has 2^depth leaves. By default by a rule.
    """

    trees: int = setting(1600, check.count)
    depth: int | None = setting(None, partial(check.count, maximum=12))

    def __post_init__(self) -> None:
        check_settings(self, " of [trees]")


@dataclass(frozen=True)
class VariationalSettings:
    """The [vi] section; the noise, batch_size, epochs, clip_norm and delta are the run's own.

    Attributes:
        family: mean_field or full_rank.
        prior_std: Prior standard deviation of every parameter, > 0.
        noise_std: Standard deviation of a regression's target given the inputs, in its unit, > 0.
        optimizer: adam or adagrad.
        learning_rate: Step size of the variational parameters.
    """

    family: str = setting("mean_field", one_of("mean_field", "full_rank"))
    prior_std: float = setting(1.0, check.positive)
    noise_std: float = setting(1.0, check.positive)
    optimizer: str = setting("adam", one_of("adam", "adagrad"))
    learning_rate: float = setting(0.05, check.positive)

    def __post_init__(self) -> None:
        check_settings(self, " of [vi]")


@dataclass(frozen=True)
class StatementSettings(_Section):
    """The [statement] section: what the card and the statement of a run say of their subject.

    Where it is given, the statement is written at the end of the run.

    Attributes:
        dataset: Name of the data; that of the data set by default.
        version: Of the data, such as a date or a digest.
        facts: What is public about the data, a list of sentences.
        unit: What one record is, such as 'one patient'.
        owner: Who answers for the data.
        contact: How to reach them.
        purpose: What the model is for.
        date: Of the release, as YYYY-MM-DD; that of the end of the run by default.
    """

    dataset: str | None = None
    version: str | None = None
    facts: tuple[str, ...] = ()
    unit: str | None = None
    owner: str | None = None
    contact: str | None = None
    purpose: str | None = None
    date: str | None = None

    def __post_init__(self) -> None:
        if self.given():
            self.about("data")

    def about(self, dataset: str) -> dict[str, Any]:
        """What was stated, with the date.

        Args:
            dataset: name of the data where none was stated.

        Raises:
            InvalidInput: a text or date is none that a statement can hold.
        """
        from tacit.statement import Subject
        from tacit.statement.subject import plain_name

        check.instance("facts of [statement]", self.facts, tuple, "a list of sentences")
        stated: dict[str, Any] = {"dataset": plain_name(dataset)} | self.given()
        return Subject(**stated).about()


METHOD_SETTINGS: dict[str, type] = {
    "auto": GradientSettings,
    "gradient": GradientSettings,
    "objective": ObjectiveSettings,
    "ticket": TicketSettings,
    "trees": TreesSettings,
    "vi": VariationalSettings,
}
"""Section of each method by the method's name; the method itself is `runs.methods.METHODS` under the same name."""


@dataclass(frozen=True, kw_only=True)
class TableConfig(TableFormat, Declarations):
    """The [table] section: a CSV or Parquet file and what is declared about it; see `tacit.data.table`.

    Attributes:
        path: of the file, from the folder of the TOML file on.
        folder: of the TOML file.
    """

    path: str
    folder: str = ""

    def __post_init__(self) -> None:
        check.text("path of [table]", self.path)
        check.text("target of [table]", self.target)
        Declarations.__post_init__(self)
        TableFormat.__post_init__(self)

    @property
    def form(self) -> TableFormat:
        """How the file is written."""
        return TableFormat(**{each.name: getattr(self, each.name) for each in fields(TableFormat)})

    def file(self, data_dir: Folder | None) -> Path:
        """Where the file lies: `path` from `data_dir` on where one is given, else from the TOML file's folder on.

        Raises:
            MissingData: it is not there; the message names where it was looked for.
            InvalidInput: its name is not that of a table.
        """
        found = Path(self.folder if data_dir is None else data_dir, self.path)
        if not found.is_file():
            start = "the TOML file" if self.folder else "the working directory"
            start = start if data_dir is None else "--data-dir"
            raise MissingData(
                f"path of [table] must be an existing CSV or Parquet file; got {self.path!r}, looked for at "
                f"{str(found.absolute())!r}. A relative path is one from {start} on; --data-dir names another folder."
            )
        return table_file(found)


def table_config(section: Mapping[str, Any]) -> TableConfig:
    """The [table] section of plain values; dates of TOML become texts."""
    values = known(TableConfig, section, where="[table]", required=("path", "target"))
    return TableConfig(**{name: _plain(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return type(value)(_plain(each) for each in value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return value
