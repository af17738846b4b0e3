"""What may be asked of the simulator over the web: names of registries and numbers in bounds, never a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from perdure.errors import ConfigError, InputError
from perdure.model.cluster import Cluster
from perdure.scheduling.elastic_policies import ELASTIC
from perdure.scheduling.placement.registry import COUNT, PLACEMENTS, placement_named
from perdure.scheduling.policies import POLICIES, policy_named
from perdure.simulation.elastic_input import elastic_retry
from perdure.simulation.failures import RECORDED, model_named
from perdure.simulation.restart_cost import PUBLISHED, RestartCost, restart_cost
from perdure.simulation.retries import RETRY_POLICIES, retry_named
from perdure.traces.read import FORMATS

MAX_POLICIES = 20
MAX_RETRIES = 6
MAX_SEEDS = 20
MAX_RUNS = 200  # policies times retry policies times seeds
ID = r"^[0-9a-f]{16}$"

PLACEMENT_NAMES = (COUNT, *PLACEMENTS)
RETRY_NAMES = tuple(form.offered for form in RETRY_POLICIES.values())

Name = Annotated[str, Field(min_length=1, max_length=40)]
Id = Annotated[str, Field(pattern=ID)]


class ComparisonQuestion(BaseModel):
    """A comparison of policies: on which jobs, on which cluster, under what."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    upload: Id | None = Field(default=None, description="Id of an uploaded trace; null: this site's own history")
    rates: Id | None = Field(default=None, description="Id of an uploaded table of rates, which a Gavel trace needs")
    format: Name | None = Field(default=None, description="Form of the trace; null: told by its content")
    cluster: Annotated[str, Field(max_length=400)] = Field(description="Nodes x GPUs, as in 32x8 or 321x2+231x8")
    policies: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_POLICIES)] = Field(
        description="Names of policies; the others are compared with the first"
    )
    placement: Name = COUNT
    retries: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_RETRIES)] = (RECORDED,)
    failures: Name = RECORDED
    load: Annotated[float, Field(gt=0, le=100, strict=True)] | None = Field(
        default=None, description="null: jobs come as recorded"
    )
    seeds: Annotated[int, Field(ge=1, le=MAX_SEEDS, strict=True)] = 1
    preemption_cost: Annotated[str, Field(min_length=1, max_length=60)] | None = Field(
        default=None,
        description="Seconds that a preempted job takes to go on: 30, or by its GPUs 1:7,8:30,60; null: as published",
    )
    skip_bad: bool = Field(
        default=False, strict=True, description="Leave bad rows and too wide jobs out, and count them"
    )

    @property
    def runs(self) -> int:
        """How many simulations it takes."""
        return len(self.policies) * len(self.retries) * self.seeds

    @property
    def cost(self) -> RestartCost:
        """What a preemption costs. Raises `InputError`."""
        return PUBLISHED if self.preemption_cost is None else restart_cost(self.preemption_cost)

    @property
    def options(self) -> Mapping[str, Any]:
        """The same as options of `perdure whatif`, those apart that are left as they are."""
        usual = ComparisonQuestion(cluster=self.cluster, policies=self.policies)
        given = {
            "format": self.format, "placement": self.placement, "failures": self.failures, "load": self.load,
            "seeds": self.seeds, "preemption_cost": self.preemption_cost, "skip_bad": self.skip_bad,
        }  # fmt: skip
        if needs_profiles(self):
            retry = {} if self.retries == usual.retries else {"retry": ",".join(self.retries)}
            return {"cluster": self.cluster, "policy": ",".join(self.policies)} | retry
        named = {"cluster": self.cluster, "policy": ",".join(self.policies)}
        retry = {"retry": ",".join(self.retries)} if self.retries != usual.retries else {}
        return named | retry | {name: value for name, value in given.items() if value != getattr(usual, name)}


def check(ask: ComparisonQuestion) -> Cluster:
    """Look every name up, in registries alone; the cluster that is meant. Raises `InputError`."""
    for what, names in (("policies", ask.policies), ("retries", ask.retries)):
        if len(set(names)) < len(names):
            raise InputError(what, "a name is given twice", "Give each once")
    if ask.format is not None and ask.format not in FORMATS:
        raise InputError(
            "format", f"{ask.format!r} is not a form of trace", f"Use one of: {', '.join(sorted(FORMATS))}"
        )
    _ = ask.cost
    if ask.rates is not None and ask.upload is None:
        raise InputError("rates", "the trace that these rates belong to is missing", "Upload that trace, too")
    if ask.runs > MAX_RUNS:
        raise InputError("seeds", f"that would be {ask.runs} runs; {MAX_RUNS} are taken", "Compare fewer at a time")
    if any(policy in ELASTIC for policy in ask.policies):
        _check_planned(ask)
        return Cluster.parse(ask.cluster)
    try:
        for policy in ask.policies:
            policy_named(policy)
        for retry in ask.retries:
            retry_named(retry)
        placement_named(ask.placement)
        model_named(ask.failures)
    except ConfigError as err:
        raise InputError(err.where, err.what, err.fix) from err
    return Cluster.parse(ask.cluster)


def _check_planned(ask: ComparisonQuestion) -> None:
    """Of policies that plan with profiles, what cannot be asked. Raises `InputError`."""
    others = [policy for policy in ask.policies if policy not in ELASTIC]
    if others:
        what = f"{', '.join(others)} of those chosen cannot be compared with policies that plan with profiles"
        raise InputError("policies", what, "Compare these among themselves: their jobs name applications")
    if ask.upload is None:
        what = "policies that plan with profiles need jobs that name an application, which this site's history does not"
        raise InputError("upload", what, "Upload a trace as `perdure whatif elastic` reads it")
    usual = ComparisonQuestion(cluster=ask.cluster, policies=ask.policies)
    for name in ("placement", "failures", "load", "seeds", "preemption_cost", "format", "rates", "skip_bad"):
        if getattr(ask, name) != getattr(usual, name):
            raise InputError(name, "policies that plan with profiles know no such setting", "Leave it as it is")
    if len(ask.retries) > 1:
        raise InputError("retries", "policies that plan with profiles are compared under one", "Choose one")
    try:
        elastic_retry(ask.retries[0])
    except ConfigError as err:
        raise InputError(err.where, err.what, err.fix) from err


def needs_profiles(ask: ComparisonQuestion) -> bool:
    """Whether it is of policies that plan with profiles."""
    return ask.policies[0] in ELASTIC


def planned_names() -> tuple[str, ...]:
    """The policies that plan with profiles."""
    return tuple(ELASTIC)


def policy_names() -> tuple[str, ...]:
    """The policies that can be asked for by their bare names."""
    return tuple(POLICIES)
