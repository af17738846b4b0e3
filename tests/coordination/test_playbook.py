"""The playbook: the longest prefix wins, entries are taken over, and what is wrong is named with its fix."""

import pytest

from perdure.coordination.handlers.registry import HANDLERS
from perdure.coordination.playbook import Playbook, own_playbook, site_playbook
from perdure.coordination.record import Component, Scope
from perdure.errors import InputError


def site(text: str) -> Playbook:
    return site_playbook(text, "site.toml")


def test_the_longest_prefix_wins() -> None:
    book = own_playbook()
    assert book.plan_for("storage.quota.over.home").levels == {Component.SCHEDULER: "move-least"}
    assert book.plan_for("storage.nfs").levels == {Component.SCHEDULER: "hold-waiting"}
    assert book.plan_for("storage.nfs").scope is Scope.GLOBAL
    assert book.plan_for("gpu.xid79").levels == {Component.RESOURCE_MANAGER: "drain"}
    assert book.plan_for("gpus") is None


def test_every_family_of_the_table_is_planned_for() -> None:
    for dotted in ("launcher.transient", "launcher.permanent", "app.nan", "app.oom", "app.shape", "app.mesh",
                   "process.signal", "process.nccl", "node.down", "gpu.xid79", "storage.quota.near",
                   "storage.quota.over", "storage.down", "storage.degraded", "network.down", "network.degraded",
                   "power.cap", "licence.short"):  # fmt: skip
        plan = own_playbook().plan_for(dotted)
        assert plan.fall_back in HANDLERS
        assert plan.deadline_s > 0


def test_a_fault_of_the_site_outlives_the_jobs_that_meet_it_unless_the_file_says_otherwise() -> None:
    book = site('[failures.a]\nscope = "global"\n[failures.b]\n[failures.c]\nscope = "global"\noutlives_job = false\n')
    assert [book.plan_for(name).outlives_job for name in "abc"] == [True, False, False]


def test_a_site_lays_its_own_over_it() -> None:
    book = site('[failures."storage"]\nscope = "global"\nseats = { scheduler = "throttle" }\n'
                '[failures."acme.fan"]\nfall_back = "leave"\n[resources.pfs]\npartitions = ["gpu"]\n')  # fmt: skip
    assert book.plan_for("storage").levels == {Component.SCHEDULER: "throttle"}  # the key's former name
    assert book.plan_for("acme.fan.slow").fall_back == "leave"
    assert book.resource("pfs").partitions == ("gpu",)
    with pytest.raises(InputError, match="circle"):
        site('[failures."storage"]\nlike = "licence"\n')


def test_what_is_full_is_the_sites_own_name_for_what_is_mounted_there() -> None:
    book = site('[resources.pfs]\ndirectory = "/scratch"\n[resources.home]\ndirectory = "/home"\n')
    assert [book.resource_at(mount).name for mount in ("/scratch", "/home", "/scratch/deep")] == [
        "pfs", "home", "/scratch/deep"
    ]  # fmt: skip
    assert book.resource_at("/data").directory == "/data"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version = 2", "version 2"),
        ("nonsense", "not TOML"),
        ("colour = 1", "Use one of: version, failures, resources"),
        ("[failures.x]\nlasts_s = 300", "end after the deadline"),
        ("[failures.x]\noutlives_job = 1", "1 is not true or false"),
        ('[failures.x]\nseats = { scheduler = "pray" }', "'pray' is not known"),
        (
            '[failures.x]\nseats = { king = "drain" }',
            "'king' is not 'resource_manager', 'job'",
        ),
        ('[failures.x]\nfall_back = "pray"', "Use one of: count-starts, drain"),
        ("[failures.x]\ndeadline_s = 0", "above 0"),
        ('[failures.x]\ndeadline_s = "soon"', "above 0"),
        ('[failures.x]\nlike = "y"\n[failures.y]\nlike = "x"', "circle"),
        ('[failures.x]\nlike = "nobody"', "is not there"),
        ("[failures.x]\nspeed = 3", "Use one of: scope"),
        ("[failures]\nx = 3", "is not a table"),
        ('[failures."X y"]\n', "not a dotted type"),
        ("[failures.x]\nbudget = { limit = -1 }", "whole number"),
        ('[failures.x]\nbudget = { per = "moon" }', "Give 'job', 'node' or 'resource'"),
        ('[resources.pfs]\npartitions = "gpu"', "a list of names"),
        ('[failures.x]\nscope = "far"', "Give 'local' or 'global'"),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        site(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("site.toml")
    assert "\n" not in str(caught.value)
