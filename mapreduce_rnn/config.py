"""The options of a run: one frozen dataclass per section, the single source of truth.

The command line, ``--config`` files and the run folder's config.toml are all made from the
fields below: a field's metadata holds its help text, the reason for its default and its limits.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mapreduce_rnn.errors import UsageError


@dataclass(frozen=True)
class Option:
    """What a field of a section tells the command line and the checks."""

    help: str
    why: str  # the reason for the default; for None: what is taken instead
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # what a number's option takes instead of a number
    minimum: float | None = None
    above: float | None = None  # exclusive minimum
    maximum: float | None = None
    metavar: str | None = None
    decides_result: bool = True  # no: how far, where or how safely; a resumed run may change it


def _option(default: Any, help: str, why: str, **limits: Any) -> Any:
    return field(default=default, metadata={"option": Option(help, why, **limits)})


@dataclass(frozen=True)
class ModelConfig:
    """model: LSTM with a linear output layer"""

    layers: int = _option(1, "LSTM layers", "enough for single pen strokes", minimum=1, maximum=100)
    units: int = _option(
        96, "LSTM units per direction", "trains in minutes on two cores", minimum=1
    )
    bidirectional: bool = _option(
        True, "read each sequence in both directions", "whole recordings are at hand"
    )
    dropout: float = _option(
        0.0,
        "share of units dropped between layers and before the output",
        "a small model underfits first",
        minimum=0.0,
        maximum=0.95,
        metavar="SHARE",
    )
    kernel: str = _option(
        "auto",
        "how the LSTM runs over a padded batch; both give the same numbers",
        "padded on a CPU, where it is 7 times faster; packed on a GPU",
        choices=("auto", "padded", "packed"),
    )


@dataclass(frozen=True)
class OptimizerConfig:
    """optimizer: what a worker does with a batch"""

    optimizer: str = _option(
        "adam",
        "local optimizer",
        "needs the least tuning",
        choices=("adam", "adamw", "sgd", "rmsprop", "adadelta"),
    )
    learning_rate: float = _option(
        5e-3,
        "peak learning rate",
        "with Adam the demo reaches 25 % label error in 5 minutes",
        above=0.0,
        metavar="RATE",
    )
    momentum: float = _option(
        0.9, "momentum of sgd and rmsprop", "usual", minimum=0.0, maximum=0.999
    )
    weight_decay: float = _option(0.0, "weight decay", "none without a need", minimum=0.0)
    clip_norm: float = _option(
        5.0,
        "gradient norm above which a gradient is scaled down to it; 0 never",
        "cuts the spikes of long sequences only",
        minimum=0.0,
        metavar="NORM",
    )
    optimizer_state: str = _option(
        "keep",
        "the optimizer's moments between rounds: start anew, average over slots, keep per slot",
        "on the demo as good as average, and one worker equals plain training",
        choices=("reset", "average", "keep"),
    )
    schedule: str = _option(
        "cosine",
        "learning rate over the horizon",
        "falls smoothly to 1 % of the peak, whatever the number of epochs",
        choices=("constant", "cosine", "step", "plateau"),
    )
    warmup: float = _option(
        0.0,
        "epochs over which the learning rate rises to its peak",
        "small models need none",
        minimum=0.0,
        metavar="EPOCHS",
    )
    horizon: float | None = _option(
        None,
        "epochs over which the schedule runs; later ones keep its last rate",
        "--epochs of the first session",
        above=0.0,
        metavar="EPOCHS",
    )
    step_epochs: float = _option(
        10.0,
        "step schedule: epochs between drops",
        "half of the default horizon",
        above=0.0,
        metavar="EPOCHS",
    )
    step_factor: float = _option(
        0.5, "step and plateau schedules: factor of each drop", "halving", above=0.0, maximum=1.0
    )
    plateau_validations: int = _option(
        3,
        "plateau schedule: validations in a row without a new best before each drop",
        "one or two are noise",
        minimum=1,
        metavar="VALIDATIONS",
    )
    amp: str = _option(
        "off",
        "mixed precision of the forward pass; the LSTM itself stays in float32",
        "short formats change results",
        choices=("off", "bfloat16"),
    )


@dataclass(frozen=True)
class BatchConfig:
    """batches: length buckets and padding"""

    batch_size: int = _option(
        32, "sequences per batch", "many steps per epoch on small data sets", minimum=1
    )
    max_frames: int | None = _option(
        None,
        "most frames of a batch, padding included; a longer sequence goes alone",
        "no limit",
        minimum=1,
        metavar="FRAMES",
    )
    buckets: int | str = _option(
        16,
        "length buckets per shard, cut where the batches cost least; auto: as few as cost at most "
        "2 % more than the best number up to 32",
        "leaves 8.5 % padding on the demo",
        words=("auto",),
        minimum=1,
    )
    bucket_cost: str = _option(
        "frames",
        "what a batch of b sequences padded to L frames costs: b L (frames); a + p L + c b L with "
        "A,P,C given or measured on the device before round 1; or a table LENGTH:COST,... per "
        "sequence",
        "the paper's; equal commands give equal runs",
        metavar="COST",
    )
    pad_to: str = _option(
        "longest",
        "pad a batch to its longest sequence, or to its bucket's boundary: few static shapes",
        "never more padding than needed",
        choices=("longest", "boundary"),
    )
    curriculum: str = _option(
        "none",
        "short sequences first: a growing number of buckets (Khomenko et al. 2016) or a growing "
        "share of the data (competence, Platanios et al. 2019)",
        "every epoch sees all data",
        choices=("none", "growing-buckets", "competence"),
    )
    curriculum_epochs: int = _option(
        5, "epochs until the curriculum has all data in play", "a quarter of the default", minimum=1
    )


@dataclass(frozen=True)
class MapReduceConfig:
    """map-reduce: how shards are trained and averaged"""

    reduce: str = _option(
        "mean",
        "how the slots' models become the next global model",
        "the paper's",
        choices=(
            "mean", "momentum", "nesterov", "slowmo", "adam", "median", "trimmed-mean", "consensus",
        ),
    )  # fmt: skip
    reduce_option: tuple[str, ...] = _option(
        (),
        "options of the reduce rule, such as eta=0.5 of momentum",
        "what its authors advise",
        metavar="NAME=VALUE,...",
    )
    map_tasks: int | None = _option(
        None,
        "map tasks (slots) per round; same number, same result, on any number of workers",
        "the number of workers",
        minimum=1,
        maximum=10_000,
    )
    sync_steps: int | None = _option(
        None,
        "batches of each slot between reduces; a round is a window of that many",
        "all of an epoch, as in the paper",
        minimum=1,
        metavar="BATCHES",
    )
    local_epochs: int = _option(
        1, "epochs on the same shard between reduces", "the paper's", minimum=1, metavar="EPOCHS"
    )
    message_limit: float | None = _option(
        None,
        "largest message that a run may need; a larger model is refused at the start",
        "what the model needs",
        above=0.0,
        metavar="MB",
        decides_result=False,
    )


@dataclass(frozen=True)
class StopConfig:
    """when to stop: whichever comes first, looked at between rounds"""

    epochs: int = _option(
        20,
        "epochs, also the horizon of the schedule",
        "7 minutes of the demo",
        minimum=1,
        decides_result=False,
    )
    rounds: int | None = _option(None, "rounds", "no limit", minimum=1, decides_result=False)
    max_seconds: float | None = _option(
        None,
        "seconds since this command began",
        "no limit",
        above=0.0,
        metavar="SECONDS",
        decides_result=False,
    )
    target_loss: float | None = _option(
        None, "validation loss to reach", "none", metavar="LOSS", decides_result=False
    )
    patience: int | None = _option(
        None,
        "validations in a row without a new best",
        "no limit",
        minimum=1,
        metavar="VALIDATIONS",
        decides_result=False,
    )


@dataclass(frozen=True)
class RunConfig:
    """run"""

    seed: int = _option(1, "same seed, same bytes", "any will do", minimum=0)
    threads: int | None = _option(
        None,
        "CPU threads per worker; part of the result, so never taken from the machine",
        "OMP_NUM_THREADS, else 1",
        minimum=1,
        maximum=1024,
    )
    validate_every: int = _option(
        1,
        "epochs between validations; the last planned round is validated too, but with the plateau "
        "schedule, which counts them",
        "the best model is chosen by them",
        minimum=1,
        metavar="EPOCHS",
    )
    checkpoint_every: int | None = _option(
        None,
        "rounds between checkpoints",
        "at most one per 10 s; the best, the last and an interrupted round always",
        minimum=1,
        metavar="ROUNDS",
        decides_result=False,
    )
    keep: int | str = _option(
        3,
        "checkpoints to keep beside that of the best round: the newest so many, or all",
        "should the newest be damaged, others are there",
        words=("all",),
        minimum=1,
        decides_result=False,
    )
    tensorboard: bool = _option(
        False,
        "write the curves for TensorBoard too, as they come, into RUN/tensorboard; needs the "
        "package's extra of that name",
        "the report has them",
        decides_result=False,
    )
    deterministic: bool = _option(
        False,
        "repeatable bytes on a GPU too: CTC loss on the CPU, deterministic kernels",
        "slower; a CPU is repeatable anyway",
    )


@dataclass(frozen=True)
class DeviceConfig:
    """devices: one worker process each, here or on other machines"""

    gpus: str | None = _option(
        None,
        "number of GPUs, or auto for all visible ones",
        "see the first example",
        decides_result=False,
    )
    devices: tuple[str, ...] = _option(
        (),
        "GPUs by index, UUID or MIG id; one named twice gets two workers",
        "see --gpus",
        metavar="TOKEN,...",
        decides_result=False,
    )
    cpu_workers: int | None = _option(
        None,
        "CPU worker processes",
        "see the first example",
        minimum=1,
        maximum=1024,
        decides_result=False,
    )
    listen: str | None = _option(
        None,
        "start no worker, but wait at tcp://HOST:PORT for the --gpus N or --cpu-workers N that "
        "`mapreduce-rnn worker` starts on any machine",
        "workers are on this machine; nothing listens on the network",
        metavar="ADDRESS",
        decides_result=False,
    )
    keys: str | None = _option(
        None,
        "folder of `mapreduce-rnn keys`: who may connect to --listen; always needed there",
        "none",
        metavar="DIR",
        decides_result=False,
    )
    simulate: bool = _option(
        False,
        "run the map tasks of --gpus N or --cpu-workers N on fewer devices (one CPU worker), each "
        "task alone, and count the time that N devices would take; same model as on N",
        "time is what it took",
        decides_result=False,
    )

    @property
    def simulated(self) -> int | None:
        """Devices whose time is counted though they are not there; None: it is real time."""
        if not self.simulate:
            return None
        return self.cpu_workers or int(self.gpus or 0)


@dataclass(frozen=True)
class WorkerConfig:
    """workers: when one is given up, and what then"""

    max_attempts: int = _option(
        5,
        "times a task may be lost with its worker before the run stops",
        "more is no accident",
        minimum=1,
        decides_result=False,
    )
    silence_seconds: float = _option(
        30.0,
        "seconds without a sign of life after which a worker counts as lost",
        "15 heartbeats",
        above=0.0,
        metavar="SECONDS",
        decides_result=False,
    )
    hang_seconds: float = _option(
        300.0,
        "seconds without a step after which a worker counts as hung, but never less than 20 times "
        "its slowest",
        "a start from a slow disk takes as long",
        above=0.0,
        metavar="SECONDS",
        decides_result=False,
    )
    backup_tasks: bool = _option(
        False,
        "let an idle worker run a copy of a task that takes twice the median; the first answer "
        "counts",
        "worth it where devices differ in speed",
        decides_result=False,
    )


@dataclass(frozen=True)
class TrainConfig:
    """All options of a training run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    batches: BatchConfig = field(default_factory=BatchConfig)
    mapreduce: MapReduceConfig = field(default_factory=MapReduceConfig)
    stop: StopConfig = field(default_factory=StopConfig)
    run: RunConfig = field(default_factory=RunConfig)
    workers: WorkerConfig = field(default_factory=WorkerConfig)
    devices: DeviceConfig = field(default_factory=DeviceConfig)


SECTIONS: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(TrainConfig))
"""Section names, which are also the tables of config.toml."""

LARGEST_INT = 2**63 - 1
"""The largest number that TOML can hold."""


@dataclass(frozen=True)
class Field:
    """One option: where it lives, what it may hold."""

    section: str
    name: str
    type: type
    optional: bool
    default: Any
    option: Option

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def group(self) -> str:
        """Heading of the option's section in ``--help``."""
        return str(_section_type(self.section).__doc__)

    @property
    def help(self) -> str:
        """Help text with the default and its reason."""
        if self.default in (None, ()):
            return f"{self.option.help} (default: {self.option.why})"
        shown = "off" if self.default is False else self.default
        return f"{self.option.help} (default {shown}: {self.option.why})"


@functools.cache
def fields() -> tuple[Field, ...]:
    """All options in the order of their definition."""
    return tuple(
        found for section in SECTIONS for found in _section_fields(section, _section_type(section))
    )


def _section_type(section: str) -> type:
    hint: type = typing.get_type_hints(TrainConfig)[section]
    return hint


def _section_fields(section: str, cls: type) -> list[Field]:
    hints = typing.get_type_hints(cls)
    return [_field(section, f, hints[f.name]) for f in dataclasses.fields(cls)]


def _field(section: str, f: dataclasses.Field[Any], hint: Any) -> Field:
    members = [m for m in typing.get_args(hint) if m is not type(None)]
    is_union = isinstance(hint, types.UnionType)
    base = members[0] if is_union else typing.get_origin(hint) or hint
    optional = type(None) in typing.get_args(hint)
    return Field(section, f.name, base, optional, f.default, f.metadata["option"])


def to_dict(config: TrainConfig) -> dict[str, dict[str, Any]]:
    """Plain nested dictionaries for TOML and messages; options that are None are left out."""
    return {
        section: {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(getattr(config, section)).items()
            if value is not None
        }
        for section in SECTIONS
    }


def fixed_options(config: TrainConfig) -> dict[str, Any]:
    """The options that decide what is computed, by name, as :func:`to_dict` spells them."""
    values = to_dict(config)
    return {
        f.name: values[f.section][f.name]
        for f in fields()
        if f.option.decides_result and f.name in values[f.section]
    }


def from_dict(values: Mapping[str, Any], source: str) -> TrainConfig:
    """A config from nested dictionaries; absent options take their defaults.

    Raises UsageError naming ``source`` for a section, name or value that is not known.
    """
    unknown = sorted(set(values) - set(SECTIONS))
    if unknown:
        raise UsageError(f"{source}: unknown section [{unknown[0]}]; known: {', '.join(SECTIONS)}")
    flat: dict[str, Any] = {}
    for section, table in values.items():
        flat.update(_known(section, table, source))
    return override(TrainConfig(), flat, source)


def _known(section: str, table: Any, source: str) -> Mapping[str, Any]:
    names = [f.name for f in fields() if f.section == section]
    if not isinstance(table, Mapping):
        raise UsageError(f"{source}: [{section}] must be a table, got {table!r}")
    unknown = sorted(set(table) - set(names))
    if unknown:
        raise UsageError(
            f"{source}: unknown option {unknown[0]!r} in [{section}]; known: {', '.join(names)}"
        )
    return table


def override(config: TrainConfig, values: Mapping[str, Any], source: str) -> TrainConfig:
    """``config`` with the options named in ``values`` (option names are unique over sections).

    Device options exclude each other, so naming one forgets those that ``config`` had.

    Raises UsageError naming ``source`` and the option for a value of the wrong type or range.
    """
    changed: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for f in fields():
        if f.name in values:
            changed[f.section][f.name] = check(f, values[f.name], source)
    if changed["devices"]:
        config = dataclasses.replace(config, devices=DeviceConfig())
    return dataclasses.replace(
        config,
        **{s: dataclasses.replace(getattr(config, s), **v) for s, v in changed.items() if v},
    )


def check(f: Field, value: Any, source: str) -> Any:
    """``value`` as the type of the option, within its limits; else UsageError."""
    if (value is None and f.optional) or (isinstance(value, str) and value in f.option.words):
        return value
    if f.type is tuple:
        return _strings(f, value, source)
    if f.type is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not f.type:
        raise _refused(f, source, _expected(f), value)
    _check_limits(f, value, source)
    return value


def _expected(f: Field) -> str:
    words = "".join(f" or {word!r}" for word in f.option.words)
    return f"a value of type {f.type.__name__}{words}"


def _strings(f: Field, value: Any, source: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
        raise _refused(f, source, "a list of strings", value)
    return tuple(value)


def _check_limits(f: Field, value: Any, source: str) -> None:
    o = f.option
    if o.choices and value not in o.choices:
        raise _refused(f, source, "one of " + ", ".join(o.choices), value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(f, source, "a finite number", value)
    if o.minimum is not None and value < o.minimum:
        raise _refused(f, source, f"at least {o.minimum:g}", value)
    if o.above is not None and value <= o.above:
        raise _refused(f, source, f"more than {o.above:g}", value)
    if o.maximum is not None and value > o.maximum:
        raise _refused(f, source, f"at most {o.maximum:g}", value)
    if isinstance(value, int) and value > LARGEST_INT:
        raise _refused(f, source, f"at most {LARGEST_INT}", value)


def _refused(f: Field, source: str, expected: str, value: Any) -> UsageError:
    return UsageError(f"{source}: {f.flag} must be {expected}, got {value!r}")
