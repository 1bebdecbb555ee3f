"""Types of a comparison's results: plain data, which `results.json` holds as it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from pydantic import TypeAdapter, ValidationError

from seqkit.analysis.measured import Cost
from seqkit.objectives.metric import DASH
from seqkit.objectives.metric import Metric as Metric

Interval = tuple[float, float]


class Json:
    """to_json and from_json of a dataclass."""

    def to_json(self) -> dict[str, object]:
        """All fields as plain data."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The value that `to_json` wrote. Raises ValueError in one line where a field is missing or of another type."""
        try:
            return TypeAdapter(cls).validate_python(value)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "value"
            raise ValueError(f"{where}: {first['msg'].lower()}") from None


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A run that serves to choose settings. values: those that it tried, by dotted key.

    score: the metric on validation data by which trials are ranked; None, as loss: it failed. width, depth: of a trial
    of another depth.
    """

    values: dict[str, Any]
    seed: int
    score: float | None = None
    loss: float | None = None
    width: int | None = None
    depth: int | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Losses after so many optimizer steps, where they were logged."""

    step: int
    train_loss: float | None = None
    valid_loss: float | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """A reported run. value: the metric on the test split. baseline: metrics of the best constant prediction.

    With an error, it has no numbers. data_sha256: by split. test_in_training: test examples that are in training, too.
    broken: sentences on the laws that its model breaks.
    """

    seed: int
    folder: str
    value: float | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    baseline: dict[str, Any] = field(default_factory=dict)
    weights: str = ""
    steps: int | None = None
    tokens: int | None = None
    train_tokens: int | None = None
    seconds: float | None = None
    curve: list[CurvePoint] = field(default_factory=list)
    data_sha256: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    test_in_training: int | None = None
    versions: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A candidate with its results. mean, std, interval: of the metric over its seeds; None: no seed finished.

    training_flops: of a step. budget_gap: to the reference, relative. farthest: tokens between an input and an output
    that depends on it, at most; None: all. longest: tokens of the longest test example. depths: all at which it could
    have the budget; empty: it is not known. untuned, config: the configuration before and after tuning, as YAML.
    chosen: settings that trials chose, by dotted key. constant: the metric of the constant prediction that is best in
    training. broken: sentences on the laws that its model breaks.
    """

    name: str
    parameters: int
    config: str
    runs: list[Run]
    training_flops: int | None = None
    width: int | None = None
    depth: int | None = None
    budget_gap: float | None = None
    farthest: int | None = None
    longest: int = 0
    depths: list[int] = field(default_factory=list)
    untuned: str = ""
    chosen: dict[str, Any] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    cost: Cost | None = None
    notes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    mean: float | None = None
    std: float | None = None
    interval: Interval | None = None
    constant: float | None = None

    @property
    def sound(self) -> list[Run]:
        """Runs that have a value."""
        return [run for run in self.runs if run.value is not None]

    @property
    def num_failed(self) -> int:
        """Number of reported runs that failed."""
        return sum(run.error is not None for run in self.runs)

    @property
    def error(self) -> str | None:
        """Why it has no value; None where it has one."""
        if self.mean is not None:
            return None
        errors = [run.error for run in self.runs if run.error]
        if errors:
            return f"no seed finished: {errors[0]}"
        return "no value"


Verdict = Literal["better", "worse", "equal", "too close for these test examples", "undecided"]
"""Decision on a candidate against the reference, by a margin δ."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """a - b: the difference of the means, its interval and p-value (None: one seed and one unit).

    p_holm: the p-value, corrected for all pairs (`statistics.corrected`) as the interval is. pairs: what was paired, in
    words. better: the better of the two; None: they are not told apart. identical: all scores are equal.
    verdict, seeds, of_examples: of a that was judged after every seed: what was decided, with how many seeds, and the
    half width that more of them do not reduce. There is no p-value then, and the interval holds at all rounds at once.
    """

    a: str
    b: str
    difference: float
    interval: Interval | None
    p: float | None
    p_holm: float | None
    pairs: str
    better: str | None = None
    identical: bool = False
    verdict: Verdict | None = None
    seeds: int = 0
    of_examples: float = 0.0

    def turned(self) -> Difference:
        """b - a."""
        if self.interval is None:
            interval = None
        else:
            interval = (-self.interval[1], -self.interval[0])
        return replace(self, a=self.b, b=self.a, difference=-self.difference, interval=interval)


@dataclass(frozen=True, kw_only=True)
class ClassicalMethod:
    """A classical method on the same data. value: the metric; number: of training examples that it was fit on."""

    name: str
    value: float
    num_train: int


@dataclass(frozen=True, kw_only=True)
class Unmatched:
    """Something that was not matched. kind: "warning", if a reviewer would object; text: whole sentences."""

    kind: Literal["warning", "note"]
    what: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A cell that failed. what: its id."""

    candidate: str
    stage: str
    what: str
    error: str


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How settings were chosen. by: the metric on the validation split."""

    lr_trials: int
    optimizers: list[str]
    depths: bool
    seeds: list[int]
    by: str


@dataclass(frozen=True, kw_only=True)
class Results(Json):
    """Results of a comparison. candidates: the reference first. tuning: None: it is not known.

    budget: the reference's parameters or FLOPs, to which the others were matched. varied: keys that differ on purpose.
    commands: the command lines that make all of this again. settings: the arguments of `Settings`.
    """

    recipe: str
    metric: Metric
    candidates: list[Row]
    kind: Literal["comparison"] = "comparison"
    preset: str | None = None
    overrides: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    match: str = "none"
    budget: int | None = None
    varied: list[str] = field(default_factory=list)
    tuning: Tuning | None = None
    seeds: list[int] = field(default_factory=list)
    num_test: int = 0
    differences: list[Difference] = field(default_factory=list)
    strong_baseline: ClassicalMethod | None = None
    unmatched: list[Unmatched] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    started: str = ""
    run_minutes: float = 0.0
    versions: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """Name of the first candidate."""
        return self.candidates[0].name if self.candidates else DASH

    @property
    def by_name(self) -> dict[str, Row]:
        """Candidates by name."""
        return {row.name: row for row in self.candidates}

    @property
    def until_sure(self) -> float | None:
        """The margin that each candidate was judged by after every seed; None: the seeds were fixed beforehand."""
        return self.settings.get("until_sure")

    @property
    def least(self) -> float:
        """The largest difference that does not count, as the metric is shown: one in the last digit."""
        return float(10**-self.metric.digits)

    def difference(self, a: str, b: str) -> Difference | None:
        """The difference a - b of two candidates; None if they have none."""
        for entry in self.differences:
            if (entry.a, entry.b) == (a, b):
                return entry
            if (entry.a, entry.b) == (b, a):
                return entry.turned()
        return None
