"""What a slurm.conf says of scheduling."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from perdure.errors import InputError
from perdure.scheduling.slurm.conf import Lines, SlurmSite, read_conf, settings_of, site_of
from perdure.scheduling.slurm.settings import BackfillSettings, MainSettings, PrioritySettings, SchedulerSettings

NODES = (
    "NodeName=DEFAULT CPUs=64 Gres=gpu:a100:4\nNodeName=n[1-4]\nNodeName=big CPUs=128 Gres=gpu:8,tmp:2 Feature=fat\n"
)


def site(text: str, files: Mapping[str, str] | None = None) -> SlurmSite:
    def lines(name: str, written: str) -> Lines:
        return [(f"{name}:{i}", line) for i, line in enumerate(written.splitlines(), 1)]

    def include(name: str, _where: str) -> Lines:
        return lines(name, (files or {})[name])

    return site_of(read_conf(lines("slurm.conf", text), include))


def test_what_is_not_said_has_slurms_own_default() -> None:
    assert site("ClusterName=c\n").settings == SchedulerSettings()


def test_priorities_have_weights_flags_and_times() -> None:
    how = site(
        "PriorityWeightAge=1000\npriorityweightTRES=CPU=2,GRES/gpu=50\nPriorityMaxAge=1-0\nPriorityFavorSmall=YES\n"
        "PriorityFlags=ACCRUE_ALWAYS,SMALL_RELATIVE_TO_TIME\nPriorityDecayHalfLife=0\nPriorityCalcPeriod=10\n"
    ).settings.priority
    assert (how.weights.age, how.weights.tres) == (1000, {"cpu": 2, "gres/gpu": 50})
    assert (how.max_age_s, how.decay_half_life_s, how.calc_period_s, how.favor_small) == (86400.0, 0.0, 600.0, True)
    assert how.flags == {"ACCRUE_ALWAYS", "SMALL_RELATIVE_TO_TIME"}
    assert site("PriorityType=priority/basic").settings.priority == PrioritySettings(multifactor=False)


def test_parameters_of_the_scheduler_have_their_units() -> None:
    found = site(
        "SchedulerParameters=bf_window=2880,bf_interval=60,bf_max_job_test=50,default_queue_depth=7,bf_continue"
    )
    assert found.settings.backfill == BackfillSettings(window_s=172_800, interval_s=60, max_job_test=50)
    assert found.settings.main == MainSettings(default_queue_depth=7)
    assert found.unmodelled == ("SchedulerParameters.bf_continue",)
    assert not site("SchedulerType=sched/builtin").settings.backfill.enabled


def test_a_loop_is_switched_off_by_minus_one() -> None:
    assert not site("SchedulerParameters=bf_interval=-1").settings.backfill.enabled
    passes = site("SchedulerParameters=sched_interval=-1")
    assert passes.unmodelled == ("SchedulerParameters.sched_interval",)  # upon events there are passes all the same
    with pytest.raises(InputError, match="bf_window"):
        site("SchedulerParameters=bf_window=-1")


def test_nodes_and_partitions_take_what_default_lines_say() -> None:
    found = site(
        NODES + "PartitionName=DEFAULT MaxTime=1-0 PriorityTier=3\nPartitionName=all Nodes=ALL Default=YES\n"
        "PartitionName=short Nodes=n[1-2] MaxTime=60 OverSubscribe=EXCLUSIVE QOS=quick\n"
        "NodeSet=fatset Feature=fat\nPartitionName=fat Nodes=fatset,n4 State=DOWN MaxNodes=2\n"
    )
    everything, short, fat = found.settings.partitions
    assert found.node_gpus == (4, 4, 4, 4, 8)
    assert (found.settings.nodes, found.settings.cpus) == (5, 384)
    assert (everything.nodes, everything.is_default, everything.max_time_s, everything.priority_tier) == (
        None,
        True,
        86400,
        3,
    )
    assert (short.nodes, short.max_time_s, short.whole_nodes, short.qos) == ((0, 1), 3600, True, "quick")
    assert (fat.nodes, fat.is_up, fat.max_nodes) == ((4, 3), False, 2)


def test_included_files_and_continued_lines_are_read() -> None:
    found = site(
        "Include parts.conf\nSchedulerParameters=bf_interval=5,\\\nbf_window=60 # a comment\n", {"parts.conf": NODES}
    )
    assert len(found.node_names) == 5
    assert (found.settings.backfill.interval_s, found.settings.backfill.window_s) == (5, 3600)


def test_a_last_line_that_ends_with_a_backslash_is_read() -> None:
    assert [each.name for each in site(NODES + "PartitionName=x Nodes=ALL \\").settings.partitions] == ["x"]


def test_no_key_is_passed_over_in_silence() -> None:
    found = site(
        "PreemptType=preempt/qos\nSlurmctldPort=6817\nNewKey=1\nPartitionName=p AllowQos=a,b Nodes=ALL GraceTime=9\n"
    )
    assert found.unmodelled == ("PartitionName.allowqos", "PartitionName.gracetime", "PreemptType")
    assert found.ignored == ("NewKey", "SlurmctldPort")


@pytest.mark.parametrize("text", ["just words", "ClusterName=c\n= 5"])
def test_a_line_that_is_none_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"slurm\.conf:[12]: .* is not KEY=VALUE"):
        site(text)


def test_a_file_that_includes_itself_ends() -> None:
    with pytest.raises(InputError, match="include itself"):
        site("Include me", {"me": "Include me"})


def test_what_scontrol_prints_is_read_by_the_same_names() -> None:
    settings, unknown = settings_of(
        {"priorityweightage": "5", "prioritymaxage": "7-00:00:00", "schedulerparameters": "(null)"}
    )
    assert (settings.priority.weights.age, settings.priority.max_age_s, unknown) == (5, 604_800.0, ())


def test_what_slurm_writes_for_nothing_said_is_taken() -> None:
    found = site(
        "PriorityWeightTRES=(null)\nPartitionName=p MaxTime=INFINITE DefaultTime=NONE MaxNodes=UNLIMITED QOS=N/A\n"
    )
    (each,) = found.settings.partitions
    assert (each.max_time_s, each.default_time_s, each.max_nodes, each.qos) == (None, None, None, "")
    assert found.unmodelled == ()
