"""Every setting does something: another value of it alone, and something that can be seen is another.

A new setting has to be put below, with what is seen of it, or with the test that shows it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from starlette.datastructures import Headers

from perdure.errors import NotPermitted, PerdureError
from perdure.live_policy.decide import LiveDecision, decide
from perdure.live_policy.preemptions import PolicyMemory
from perdure.model.actions import Drain, Hold
from perdure.model.jobs import AttemptState, JobState, PolicyConsent
from perdure.model.nodes import Node, NodeState
from perdure.retry.history import Fleet, NodeTrouble, Spent
from perdure.service.access.peers import Peer
from perdure.service.access.proxy.login import ProxyLogin
from perdure.service.blame.watch import Watch
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.messages import Ordered
from perdure.service.notices.notice import Kind, Message, Notice
from perdure.service.notices.notifier import Notifier, network_of
from perdure.service.notices.rules import PendingMessage, next_to_send, retry_at
from perdure.service.runtime import serving
from perdure.service.runtime.assembly import playbook_of, rules_of
from perdure.service.settings import Settings, known_names, load, value_of
from perdure.service.whatif import comparison_queue
from perdure.service.whatif.comparison import Trouble
from perdure.service.whatif.comparison_queue import ComparisonQueue
from tests.copying import replace
from tests.live_policy import queues
from tests.retry import test_decide as retries
from tests.service.core import test_waiting_retry as waiting
from tests.service.core.test_controller import FAILED, JOB, ONE, TRANSIENT, Run

ROOT = Path(__file__).resolve().parents[2]
Look = Callable[[Settings], Any]
NOW = retries.NOW
UNLIKE = "x"  # a kind of failure that is not the one at hand

# -- the policy in force


def policy_decides(settings: Settings) -> LiveDecision:
    """On three nodes with jobs of different ages, one of which was put back before, and on a queue of others."""
    ran = [queues.running(str(n), 3_000.0 * n, (f"n{n}",)) for n in (1, 2)]
    nobodys: dict[str, Any] = {"consent": PolicyConsent.NONE, "qos": "low"}
    jobs = (
        *ran, queues.running("3", 8_000.0, ("n3",), **nobodys), queues.waiting("4", 5), queues.waiting("5", 4, 4),
        queues.waiting("6", 9, 4), queues.waiting("7", 9, 2), queues.waiting("8", 9, **nobodys),
    )  # fmt: skip
    lived = {"4": [(1.0, 20_001.0)], "5": [(1.0, 300.0)], "7": [(1.0, 2_000.0)]}
    memory = PolicyMemory({"1": 1}, [queues.NOW_S - 9.0], checkpoint_s={"2": queues.NOW_S - 100.0})
    policy = replace(settings.policy, name=settings.policy.name or "las-2d")
    return decide(queues.look(*jobs, nodes=3), lived, policy, memory)


def in_rounds(settings: Settings) -> LiveDecision:
    return policy_decides(replace(settings, policy=replace(settings.policy, name="themis")))


# -- the retry decision


def decided(settings: Settings, verdict: Any = retries.TRANSIENT, **more: Any) -> Any:
    return retries.decided(verdict, rules=settings.retry, **more)


def after(times: int, settings: Settings, verdict: Any = retries.TRANSIENT, **earlier: Any) -> Any:
    return decided(settings, verdict, past=retries.earlier(times, **earlier))


def beside(settings: Settings, times: int, user: str = "bob", nodes: tuple[str, ...] = ("n9",), live: int = 10) -> str:
    """What makes a retry wait, beside so many others."""
    fleet = replace(retries.FLEET, live_jobs=live, spent=(Spent(NOW, "9", user, nodes),) * times)
    return decided(settings, fleet=fleet).limit


def of_the_job(verdict: Any) -> Any:
    return replace(verdict, infrastructure=False)


def kept_off(settings: Settings) -> Any:
    """Nodes that are avoided for what three jobs of two users met there an hour and a half ago."""
    old = [NodeTrouble(NOW - 5400.0, str(n), user, "net", False) for n, user in enumerate(("eve", "bob", "eve"))]
    return decided(settings, fleet=Fleet(retries.FLEET.usable, live_jobs=10, troubles={"n1": tuple(old)})).exclude


def at_walltime(settings: Settings) -> Any:
    ended = replace(retries.TRIED, state=AttemptState.TIMEOUT)
    return decided(settings, retries.UNSURE, job=replace(retries.JOB, partition="long"), attempt=ended).reason


def nodes_given_back(settings: Settings) -> Any:
    run = waiting.waiting_retry()
    run.settings = replace(run.settings, retry=settings.retry)
    run.look(3999.0, [waiting.WAITS], [FAILED], waiting.OTHERS_OUT)
    return run.acts()


# -- the controller, the scope


def expires(settings: Settings) -> Any:
    _, effects = step(ControllerState("c"), Ordered(1.0, Hold(ONE), "bob", ""), settings.controller)
    return [getattr(each, "expires_s", None) for each in effects]


def gone_after(seconds: float) -> Look:
    """What is thought of a job that ran, and of which nothing is said for so long."""

    def look(settings: Settings) -> Any:
        run = Run(settings.controller)
        run.look(0.0, [replace(JOB, state=JobState.RUNNING)], [replace(FAILED, state=AttemptState.RUNNING, end_s=None)])
        for at_s in (1.0, 1.0 + seconds):
            run.look(at_s, [], [])
        return len(run.state.known.running)

    return look


def remembered(settings: Settings) -> Any:
    run = Run(settings.controller)
    for n in range(4):
        job_id = str(n + 1)
        attempt = replace(FAILED, id=replace(ONE, job_id=job_id))
        run.look(3611.0 + n, [replace(JOB, job_id=job_id)], [attempt])
        run.judge(TRANSIENT, attempt.id, 3612.0 + n)
        run.look(3613.0 + n, [replace(JOB, job_id=job_id, state=JobState.CANCELLED)], [])
    return len(run.state.cases)


HERE = replace(JOB, partition="gpu", qos="high", account="physics")


def scoped(settings: Settings) -> Any:
    drain = Drain("n1", "r", "e")
    node = Node("n1", NodeState.UP, partitions=("gpu",))
    return settings.scope.refuses(Hold(ONE), HERE, None), settings.scope.refuses(drain, None, node)


# -- notices, logins by a proxy, suspects, simulations


def pending(n: int = 0) -> PendingMessage:
    notice = Notice(Kind.SUSPECT, f"s{n}", NOW, "a node is suspected")
    return PendingMessage(Message(f"k{n}", "c", "ops", Kind.SUSPECT, (notice,), 1, NOW, NOW), NOW)


def sent(settings: Settings) -> Any:
    begun = {("", Kind.SUSPECT.severity): [NOW - 5.0] * 3}
    return next_to_send([pending()], begun, settings.notices.limits, NOW) is not None


def may_be_reached(url: str) -> Look:
    def look(settings: Settings) -> Any:
        with suppress(PerdureError):
            return network_of(settings.notices).checked(url) is not None
        return False

    return look


def is_connected_to(address: str) -> Look:
    def look(settings: Settings) -> Any:
        with suppress(PerdureError):
            network_of(settings.notices)._check_address("files.site.org", address)
            return True
        return False

    return look


def told_by(settings: Settings) -> Any:
    store: Any = SimpleNamespace()
    return Notifier(store, "c", settings.notices, Path("/x"), "http://here", lambda: NOW)


def of_proxy(settings: Settings, *, secret: str = "", groups: str = "hpc", uid: int | None = None, **more: Any) -> Any:
    """Whom the proxy logs in, or why it does not."""
    given = replace(settings.proxy, user_header=settings.proxy.user_header or more.pop("user_header", "X-User"), **more)
    sent = {"X-User": "mira", "Remote-User": "eve", "X-Groups": groups, "X-Perdure-Proxy": secret}
    peer = Peer(uid, "") if uid is not None else Peer(None, "10.0.0.5")
    try:
        found = ProxyLogin(given).identity(peer, Headers(sent))
    except NotPermitted as err:
        return str(err)
    return found and (found.user, found.role)


def over_tcp(settings: Settings, **more: Any) -> Any:
    return of_proxy(settings, addresses=settings.proxy.addresses or ("10.0.0.0/8",), **more)


def suspects(settings: Settings) -> Any:
    asked: list[float] = []

    def ended_since(since_s: float) -> list[Any]:
        asked.append(since_s)
        return []

    store: Any = SimpleNamespace(standing=tuple, ended_since=ended_since, cluster="c")
    watch = Watch(store, settings.blame, lambda: NOW, lambda _: None)
    watch.turn()
    return asked, watch._patience


def simulated_with(settings: Settings) -> Any:
    """What the process that simulates is told."""
    told: list[Any] = []

    def carried_out(order: Any, *_: Any) -> Trouble:
        told.append((order.unpacked_bytes, order.memory_bytes, order.time_limit_s, order.nice))
        return Trouble(where="here", what="it is not simulated", fix="Do so")

    queue, asked = (
        ComparisonQueue.__new__(ComparisonQueue),
        cast("Any", SimpleNamespace(id="1", ask=SimpleNamespace(upload="trace.csv"))),
    )
    queue.settings, queue._work, queue._database, queue._cluster = settings.whatif, Path("/x"), "", "c"
    with patch.object(comparison_queue, "carry_out", carried_out):
        queue._carried_out(asked)
    return told


# -- what a site lays beside Perdure's own


def of_file(text: str, name: str, look: Look, tmp_path: Path) -> tuple[Any, Any]:
    path = tmp_path / "site.toml"
    path.write_text(text)
    return look(load({"HOME": "/x"}).settings), look(load({"HOME": "/x"}, flags={name: path}).settings)


def test_a_sites_own_playbook_is_the_controllers(tmp_path: Path) -> None:
    before, now = of_file(
        '[failures.mine]\nfall_back = "leave"\n',
        "coordination.playbook",
        lambda s: playbook_of(s).plan_for("mine"),
        tmp_path,
    )
    assert before is None
    assert now.fall_back == "leave"


def test_a_sites_own_rules_are_tried(tmp_path: Path) -> None:
    rule = """
[[rule]]
name = "mine"
category = "missing_file"
pattern = "purged by policy"
p = 0.05
yes = ["purged by policy"]
"""
    names = of_file(rule, "triage.rules", lambda s: {each.cause.name for each in rules_of(s).rules}, tmp_path)
    assert names[1] - names[0] == {"mine"}


def test_a_socket_of_that_name_is_for_all_users_and_the_hosts_are_those_of_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class Ends(BaseException):
        pass

    def web(*given: Any, **_: Any) -> Any:
        made.append(given[3].hosts)
        return SimpleNamespace(state=SimpleNamespace(listeners=SimpleNamespace(close=None)))

    def local(path: Path, *, shared: bool) -> Any:
        made.append((path, shared))
        raise Ends

    monkeypatch.setattr(serving, "create_app", web)
    monkeypatch.setattr(serving, "unix_socket", local)
    engine: Any = SimpleNamespace(backend=SimpleNamespace(cluster="c"), journal=SimpleNamespace(engine=None))
    monkeypatch.setattr(serving, "ServiceCommands", lambda *_: None)
    place: Any = tmp_path / "a.sock"
    for flags in ({}, {"service.socket": place, "service.hosts": ["perdure.site.org"]}):
        with pytest.raises(Ends):
            serving.serve(load({"HOME": "/x"}, flags=flags).settings, engine, None, None, None, "u", tmp_path, None)  # type: ignore[arg-type]
    assert made == [(), (tmp_path / "perdure.sock", False), ("perdure.site.org",), (place, True)]


WIRING, LIMITS, SETTINGS, HERE_ = (
    f"tests/service/test_{name}.py" for name in ("wiring", "limits_together", "settings", "every_setting")
)
WHATIF = "tests/service/whatif/test_whatif.py"
CONDOR = "tests/backends/condor/test_live.py::test_the_jobs_of_the_named_schedd_are_seen"
KUBE = "tests/backends/kubernetes/test_settings.py"
CAPS = f"{LIMITS}::test_as_many_actions_as_the_strictest_cap_allows"

TESTED: dict[str, str] = {
    "service.cluster": f"{SETTINGS}::test_the_embedded_cluster_acts_and_slurm_is_only_watched",
    "service.cluster_name": f"{SETTINGS}::test_a_cluster_is_called_as_its_kind_unless_it_has_a_name",
    "service.host": f"{WIRING}::test_the_service_listens_where_it_is_told",
    "service.port": f"{WIRING}::test_the_service_listens_where_it_is_told",
    "service.allow_remote": f"{SETTINGS}::test_any_other_address_needs_leave",
    "service.hosts": f"{HERE_}::test_a_socket_of_that_name_is_for_all_users_and_the_hosts_are_those_of_the_pages",
    "service.state": f"{SETTINGS}::test_directories_follow_xdg_and_relative_ones_are_ignored",
    "service.socket": f"{HERE_}::test_a_socket_of_that_name_is_for_all_users_and_the_hosts_are_those_of_the_pages",
    "service.database": f"{WIRING}::test_a_standby_waits_for_the_journal_and_another_does_not",
    "service.keep_days": f"{WIRING}::test_the_journal_keeps_as_many_days_as_are_set",
    "service.poll_s": f"{WIRING}::test_looks_are_as_frequent_as_is_set",
    "service.standby": f"{WIRING}::test_a_standby_waits_for_the_journal_and_another_does_not",
    "service.keep_chains": f"{WIRING}::test_chains_are_kept_where_that_is_set",
    "service.act": f"{WIRING}::test_what_may_be_done_reaches_the_hands",
    "local.nodes": f"{WIRING}::test_the_embedded_cluster_has_as_many_nodes_and_gpus_as_are_set",
    "local.gpus": f"{WIRING}::test_the_embedded_cluster_has_as_many_nodes_and_gpus_as_are_set",
    "local.demo": f"{WIRING}::test_the_embedded_cluster_has_as_many_nodes_and_gpus_as_are_set",
    "slurm.tool_timeout_s": f"{WIRING}::test_slurm_is_asked_as_is_set",
    "slurm.cluster": f"{WIRING}::test_slurm_is_asked_as_is_set",
    "slurm.conf": f"{WIRING}::test_slurm_is_asked_as_is_set",
    "slurm.spool": f"{WIRING}::test_slurm_is_asked_as_is_set",
    "slurm.looks_per_minute": f"{WIRING}::test_looks_are_as_frequent_as_is_set",
    "slurm.start_wait_s": f"{WIRING}::test_slurm_is_asked_as_is_set",
    "condor.schedd": CONDOR,
    "condor.pool": CONDOR,
    "condor.constraint": CONDOR,
    "condor.tool_timeout_s": "tests/backends/condor/test_tools.py::test_a_tool_that_hangs_is_ended",
    "kubernetes.kubeconfig": f"{KUBE}::test_the_cluster_and_context_of_the_kubeconfig_are_used",
    "kubernetes.context": f"{KUBE}::test_the_cluster_and_context_of_the_kubeconfig_are_used",
    "kubernetes.namespace": f"{KUBE}::test_jobs_of_the_namespace_and_selector_are_seen",
    "kubernetes.selector": f"{KUBE}::test_jobs_of_the_namespace_and_selector_are_seen",
    "kubernetes.owner_label": f"{KUBE}::test_a_label_names_the_owner_only_where_the_site_says_so",
    "kubernetes.lease_namespace": f"{KUBE}::test_the_lease_is_in_its_namespace",
    "kubernetes.timeout_s": f"{KUBE}::test_an_answer_is_waited_for_as_long_as_is_set",
    "kubernetes.launch_patience_s": f"{KUBE}::test_an_image_that_is_not_there_fails_the_launch_after_patience",
    **{f"caps.{name}": CAPS for name in (
        "actions_per_hour", "jobs_share_per_hour", "floor_per_hour", "drains_per_hour", "nodes_share_per_hour",
        "drains_floor_per_hour", "nodes_out_share",
    )},
    "coordination.playbook": f"{HERE_}::test_a_sites_own_playbook_is_the_controllers",
    "coordination.agents": f"{WIRING}::test_nodes_are_watched_where_their_agents_write",
    "coordination.fences": f"{WIRING}::test_nodes_are_watched_where_their_agents_write",
    "coordination.watch_every_s": f"{WIRING}::test_nodes_are_watched_where_their_agents_write",
    "triage.rules": f"{HERE_}::test_a_sites_own_rules_are_tried",
    "triage.learn": f"{WIRING}::test_what_is_learnt_and_how_often",
    "triage.learn_every_s": f"{WIRING}::test_what_is_learnt_and_how_often",
    "triage.keep_logs_mib": f"{WIRING}::test_logs_are_kept_as_long_and_as_much_as_is_set",
    "triage.keep_logs_days": f"{WIRING}::test_logs_are_kept_as_long_and_as_much_as_is_set",
    "whatif.enabled": f"{WIRING}::test_questions_are_answered_unless_they_are_turned_off",
    "whatif.upload_mib": f"{WHATIF}::test_too_much_is_refused_and_leaves_nothing",
    "whatif.queue": f"{WHATIF}::test_a_viewer_has_one_at_a_time_and_the_queue_ends",
    "whatif.keep": f"{WHATIF}::test_the_oldest_are_forgotten",
    "whatif.profiles": f"{WHATIF}::test_policies_with_profiles_are_offered_and_compared_on_a_cluster_of_two_types",
    "blame.enabled": f"{WIRING}::test_suspects_are_looked_for_as_is_set",
    "blame.step_s": f"{WIRING}::test_suspects_are_looked_for_as_is_set",
    "blame.switches": f"{WIRING}::test_suspects_are_looked_for_as_is_set",
    "blame.storage": f"{WIRING}::test_suspects_are_looked_for_as_is_set",
    "policy.history": "tests/service/live_policy/test_worker.py::test_an_index_rests_on_a_sites_own_accounting",
    "policy.every_s": f"{WIRING}::test_a_policy_decides_as_often_as_is_set",
    "waits.every_s": f"{WIRING}::test_starts_are_forecast_on_slurm_as_often_as_is_set",
    "notices.targets": f"{WIRING}::test_people_are_told_where_somebody_is_named",
    "notices.disk_low_mib": (
        "tests/service/notices/test_rules.py::test_a_disk_is_told_of_when_it_is_low_and_when_it_has_clearly_more_room"
    ),
    "notices.group_s": "tests/service/notices/test_edges.py::test_a_message_goes_when_it_is_due_and_not_before",
    "proxy.secret_file": (
        "tests/attacks/test_proxy.py::test_over_the_socket_the_kernel_knows_the_proxy_and_over_tcp_the_secret_does"
    ),
}  # fmt: skip

SEEN: dict[str, tuple[Any, Look]] = {
    "retry.person_delay_h": (0.01, lambda s: decided(s).kind),
    "retry.nuisance_h": (100.0, lambda s: decided(s).kind),
    "retry.max_infrastructure_retries": (3, lambda s: after(3, s, fingerprint=UNLIKE).kind),
    "retry.max_user_retries": (
        3, lambda s: after(2, s, of_the_job(retries.TRANSIENT), fingerprint=UNLIKE, infrastructure=False).kind,
    ),
    "retry.max_probes": (2, lambda s: after(1, s, retries.UNSURE, fingerprint="u", infrastructure=False).kind),
    "retry.cluster_share_per_hour": (0.0, lambda s: beside(s, 110, live=500)),
    "retry.cluster_floor_per_hour": (20, lambda s: beside(s, 20)),
    "retry.per_cluster_per_hour": (7, lambda s: beside(s, 7)),
    "retry.per_node_per_hour": (3, lambda s: beside(s, 3, nodes=("n2",))),
    "retry.user_share": (0.05, lambda s: beside(s, 5, "ada")),
    "retry.per_user_per_hour": (2, lambda s: beside(s, 2, "ada")),
    "retry.back_off_s": (33.0, lambda s: decided(s).delay_s),
    "retry.back_off_cap_s": (20.0, lambda s: after(3, s, fingerprint=UNLIKE).delay_s),
    "retry.repeat_odds": (0.9, lambda s: after(1, s).p_transient),
    "retry.same_place_odds": (0.9, lambda s: after(1, s, node="n2").p_transient),
    "retry.requeue_at_timeout": (["long"], at_walltime),
    "retry.give_back_after_s": (60.0, nodes_given_back),
    "retry.node_memory_s": (3600.0, kept_off),
    "scope.partitions": (["cpu"], scoped),
    "scope.not_partitions": (["gpu"], scoped),
    "scope.qos": (["low"], scoped),
    "scope.not_qos": (["high"], scoped),
    "scope.accounts": (["chemistry"], scoped),
    "scope.not_accounts": (["physics"], scoped),
    "scope.users": (["bob"], scoped),
    "scope.not_users": (["ada"], scoped),
    "scope.actions": (["requeue"], scoped),
    "scope.not_actions": (["drain"], scoped),
    "controller.action_ttl_s": (60.0, expires),
    "controller.vanish_grace_s": (5.0, gone_after(10.0)),
    "controller.max_cases": (2, remembered),
    "whatif.unpacked_mib": (7, simulated_with),
    "whatif.memory_mib": (2048, simulated_with),
    "whatif.time_limit_s": (7.0, simulated_with),
    "whatif.nice": (3, simulated_with),
    "blame.window_s": (600.0, suspects),
    "blame.confirm": (5, suspects),
    "blame.release": (5, suspects),
    "policy.name": ("fifo", policy_decides),
    "policy.partitions": (["main"], policy_decides),
    "policy.qos": (["low"], policy_decides),
    "policy.preempt_qos": (["low"], policy_decides),
    "policy.owners": (False, policy_decides),
    "policy.changes": (1, lambda s: len(policy_decides(s).changes)),
    "policy.first_limit_s": (500.0, policy_decides),
    "policy.second_limit_s": (90_000.0, policy_decides),
    "policy.lease_s": (500.0, in_rounds),
    "policy.round_s": (1000.0, in_rounds),
    "policy.least_run_s": (7_000.0, policy_decides),
    "policy.checkpoint_age_s": (10.0, policy_decides),
    "policy.needs_checkpoint": (True, policy_decides),
    "policy.preemptions_per_job": (1, policy_decides),
    "policy.preemptions_per_hour": (1, policy_decides),
    "notices.per_hour": (3, sent),
    "notices.retry_for_s": (60.0, lambda s: retry_at(1, NOW - 61.0, s.notices.limits, NOW)),
    "notices.timeout_s": (3.0, lambda s: network_of(s.notices).timeout_s),
    "notices.allow_hosts": (["*.site.org"], may_be_reached("https://example.org/x")),
    "notices.allow_http": (True, may_be_reached("http://example.org/x")),
    "notices.allow_link_local": (True, is_connected_to("169.254.1.1")),
    "notices.url": ("https://perdure.site.org", lambda s: told_by(s)._base_url),
    "notices.rules": ([{"to": ["ops"], "severity": "critical"}], lambda s: told_by(s)._routing.rules),
}  # fmt: skip
PROXY: dict[str, tuple[dict[str, Any], dict[str, Any], Look]] = {  # beside what a proxy needs; the change; what is seen
    "user_header": ({}, {"user_header": "Remote-User"}, over_tcp),
    "groups_header": (
        {"groups_header": "Y"}, {"groups_header": "X-Groups"}, lambda s: over_tcp(s, operators=("hpc",)),
    ),
    "operators": ({}, {"operators": ("hpc",)}, lambda s: over_tcp(s, groups_header="X-Groups")),
    "viewers": ({}, {"viewers": ("others",)}, lambda s: over_tcp(s, groups_header="X-Groups")),
    "users": ({}, {"users": ("root",)}, lambda s: of_proxy(s, uid=0)),
    "addresses": ({"addresses": ("10.9.0.0/16",)}, {"addresses": ("10.0.0.5",)}, of_proxy),
}  # fmt: skip


def test_no_setting_is_left_out() -> None:
    named = [*TESTED, *SEEN, *(f"proxy.{name}" for name in PROXY)]
    assert sorted(named) == sorted(known_names())


@pytest.mark.parametrize("test", sorted(set(TESTED.values())))
def test_what_shows_it_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    parsed = ast.walk(ast.parse((ROOT / path).read_text()))
    functions = [each.name for each in parsed if isinstance(each, ast.FunctionDef)]
    assert name in functions


@pytest.mark.parametrize("name", SEEN)
def test_another_value_of_it_alone_is_seen(name: str) -> None:
    value, look = SEEN[name]
    besides = {"notices.targets": {"ops": {"kind": "ntfy", "url": "https://ntfy.site.org/x"}}}
    before, now = (load({"HOME": "/x"}, flags=flags).settings for flags in (besides, {**besides, name: value}))
    assert value_of(before, name) != value_of(now, name)
    assert look(before) != look(now)


@pytest.mark.parametrize("name", PROXY)
def test_another_value_of_the_proxys_is_seen(name: str) -> None:
    besides, change, look = PROXY[name]
    before, now = (replace(Settings(), proxy=replace(Settings().proxy, **more)) for more in (besides, change))
    assert look(before) != look(now)
