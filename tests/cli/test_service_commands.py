"""The commands that ask a running service, against one: `perdure up` on the embedded cluster, without demonstration."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest

from perdure.cli.jobs import Status
from perdure.model.jobs import JobState
from perdure.service.access.auth import Role, TokenBook
from perdure.service.access.service_file import ServiceFile
from tests.cli.conftest import Ran

WITHIN_S = 120.0


@contextmanager
def running(home: Path, *words: str) -> Iterator[Path]:
    """`perdure up` in a home of its own; yields its state directory once it is ready."""
    state = home / "state"
    env = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""}
    command = [sys.executable, "-m", "perdure", "up", "--port", "0", "--no-demo", "--state", str(state), *words]
    with (home / "up.log").open("w") as log:
        process = subprocess.Popen(command, cwd=home, env=env, stdout=log, stderr=log)
    try:
        await_(lambda: process.poll() is not None or is_ready(state), (home / "up.log").read_text)
        assert process.poll() is None, (home / "up.log").read_text()
        yield state
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=WITHIN_S)
    assert code in (0, 130), (home / "up.log").read_text()
    assert not (state / "service.json").exists()


def is_ready(state: Path) -> Any:
    with suppress(Exception), urlopen(f"{ServiceFile.read(state).url}/readyz", timeout=5) as answer:
        return answer.status == 200
    return False


def await_(condition: Callable[[], Any], words: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, words()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running(tmp_path_factory.mktemp("home"), "--nodes", "3", "--gpus", "2") as path:
        yield path


@pytest.fixture
def ask(perdure: Callable[..., Ran], state: Path) -> Callable[..., Ran]:
    """Run a command against the service."""
    return lambda command, *words: perdure(*command.split(), "--state", str(state), *words)


def test_who_listens_is_sent_home_quietly(tmp_path: Path) -> None:
    with running(tmp_path, "--nodes", "1") as state:
        found = ServiceFile.read(state)
        asked = Request(f"{found.url}/api/v1/events/stream", headers={"Authorization": f"Bearer {found.token}"})
        stream = urlopen(asked, timeout=WITHIN_S)
        assert stream.readline().startswith(b"id: ")
    with stream:
        assert b"problem" not in stream.read()  # it ended in order
    assert "Traceback" not in (tmp_path / "up.log").read_text()


def state_of(ask: Callable[..., Ran], job_id: str) -> Any:
    found = ask("jobs", "--json").json["jobs"]
    return next((job["state"] for job in found if job["job_id"] == job_id), "")


def node(ask: Callable[..., Ran], name: str) -> Any:
    return next(node for node in ask("nodes", "--json").json["nodes"] if node["name"] == name)


def test_nodes_are_listed(ask: Callable[..., Ran]) -> None:
    found = ask("nodes", "--json").json
    assert found["schema"] == "perdure.nodes/1"
    names = [node["name"] for node in found["nodes"]]
    assert len(names) == 3
    table = ask("nodes")
    assert table.code == 0
    assert [line.split()[0] for line in table.out.splitlines()] == ["NODE", *names]
    assert "0/2" in table.out


def test_jobs_that_wait_for_a_drained_node_say_so(ask: Callable[..., Ran]) -> None:
    name = ask("nodes", "--json").json["nodes"][0]["name"]
    ask("node drain", name, "--reason", "bad fan")
    first, second = (ask("submit", "--nodes", "3", "--", "true").out.strip() for _ in range(2))
    said = f"wait for {name}, which is drain"
    await_(lambda: f"{second}, {first} {said}" in ask("jobs").out)
    assert "bad fan" in ask("jobs").out
    await_(lambda: f"is pending: it waits for {name}, which is drain" in ask("why", first).out)
    assert ask("node undrain", name).code == 0
    await_(lambda: state_of(ask, second) == "completed")
    assert "waits for" not in ask("jobs").out + ask("why", first).out


def test_a_link_logs_a_browser_in_once(ask: Callable[..., Ran]) -> None:
    link = ask("open").out.strip()
    browser = build_opener(HTTPCookieProcessor())
    assert "Logged in." in browser.open(link, timeout=WITHIN_S).read().decode()
    assert "<h1>Now</h1>" in browser.open(link.partition("?")[0], timeout=WITHIN_S).read().decode()
    with pytest.raises(HTTPError, match="403"):
        build_opener(HTTPCookieProcessor()).open(link, timeout=WITHIN_S)


def test_a_cluster_that_has_just_begun_suspects_nobody(ask: Callable[..., Ran]) -> None:
    assert ask("who", "--json").json == {"schema": "perdure.who/1", "suspects": [], "cleared": []}


def test_a_job_is_submitted_listed_and_explained(ask: Callable[..., Ran]) -> None:
    steps = "for n in 1 2 3 4; do echo step $n; done; echo saved run/step-4.pt; echo step 5; "
    program = steps + "echo 'IndentationError: unexpected indent'; exit 1"
    job_id = ask("submit", "--name", "indent", "--", "sh", "-c", program).out.strip()
    await_(lambda: state_of(ask, job_id) == "failed")
    assert job_id in ask("jobs", "--status", "failed").out
    assert ask("jobs", "--status", "running").out.count("\n") == 1
    assert ask("jobs", "--job-state", "running").out == ask("jobs", "--status", "running").out
    await_(lambda: ask("why", job_id).code == 1)
    card = ask("why", job_id).out
    assert card.startswith(f"job {job_id} ")
    assert "DETERMINISTIC" in card
    assert "STOP" in card
    assert "IndentationError" in card
    assert "came to step 5; saved run/step-4.pt at step 4; about 20% of its steps are lost" in card
    found = ask("why", job_id, "--json").json
    assert found["schema"] == "perdure.job/1"
    assert found["exceptions"][0]["decision"] == "stop"


def test_a_verdict_is_corrected_learnt_from_and_the_word_taken_back(ask: Callable[..., Ran]) -> None:
    assert "No training yet" in ask("learn").out
    program = "echo 'ImportError: cannot import name quux'; exit 1"
    job_id = ask("submit", "--", "sh", "-c", program).out.strip()
    await_(lambda: ask("why", job_id).code == 1)
    told = ask("why", job_id, "--correct", "transient").out
    assert told.endswith("noted: transient; verdicts on what looks alike follow it\n")
    again = ask("submit", "--", "sh", "-c", program).out.strip()
    await_(lambda: "TRANSIENT" in ask("why", again).out)
    assert f"said of job {job_id}" in ask("why", again).out
    assert "1 of 1" in ask("learn", "--now").out
    assert ask("learn", "--json").json["rounds"][0]["term"]["persons"] == 1
    model = ask("learn", "--json").json["model"]
    assert f"rolled back from the model of training {model}" in ask("learn", "--rollback").out
    assert ask("learn", "--rollback").out == "the model that came with Perdure is in use\n"
    assert ask("why", job_id, "--correct", "none").out.endswith("correction taken back\n")
    assert "you have made no correction" in ask("why", job_id, "--correct", "none").err


def test_what_was_taught_is_set_aside_and_approved(ask: Callable[..., Ran]) -> None:
    program = "echo 'ImportError: cannot import name quux'; exit 1"
    job_id = ask("submit", "--", "sh", "-c", program).out.strip()
    await_(lambda: ask("why", job_id).code == 1)
    ask("why", job_id, "--correct", "transient")
    assert "attempt 1 was transient, by the word of " in ask("why", job_id).out
    assert "name the word that you saw" in ask("learn", "--approve", f"job={job_id}").err
    (said,) = ask("learn", "--json").json["corrections"]
    assert "ImportError: cannot import name quux" in ask("learn").out.partition("CORRECTED")[2]
    confirmed = ask("learn", "--approve", f"word={said['word']}").out
    assert "holds for all users" in confirmed
    assert "ImportError: cannot import name quux" in confirmed
    assert "eve: it taught nothing up to now" in ask("learn", "--set-aside", "user=eve").out
    assert "eve" in ask("learn").out
    assert ask("learn", "--approve", "user=eve").out.endswith("counts again\n")
    for words in (
        ["--approve", "user=eve"],
        ["--set-aside", "day=soon"],
        ["--set-aside", "eve"],
        ["--approve", "job=9"],
        ["--approve", "word=9"],
    ):
        ran = ask("learn", *words)
        assert ran.code == 2
        assert ran.err.count("\n") == 1


@pytest.mark.parametrize("words", [["why", "train.log", "--correct", "transient"], ["learn", "--now", "--rollback"]])
def test_what_cannot_be_corrected_or_done_at_once_is_told(ask: Callable[..., Ran], words: list[str]) -> None:
    ran = ask(*words)
    assert ran.code == 2
    assert ran.err.count("\n") == 1


def test_a_job_that_did_not_fail_is_no_finding(ask: Callable[..., Ran]) -> None:
    job_id = ask("submit", "--json", "--", "true").json["job_id"]
    await_(lambda: state_of(ask, job_id) == "completed")
    ran = ask("why", job_id)
    assert ran.code == 0
    assert ran.out.startswith(f"job {job_id}, 'true' of ")


def test_the_options_of_submit_reach_the_job(ask: Callable[..., Ran]) -> None:
    words = "--nodes 2 --gpus 1 --time 600 --no-requeue --signal USR1@60 --user ada --name a"
    job_id = ask("submit", *words.split(), "--", "sleep", "600").out.strip()
    await_(lambda: state_of(ask, job_id) == "running")
    (job,) = [job for job in ask("jobs", "--user", "ada", "--json").json["jobs"] if job["job_id"] == job_id]
    assert (job["node_count"], job["gpus"], job["walltime_s"], job["may_requeue"]) == (2, 2, 600.0, False)


def test_a_node_is_drained_and_returned(ask: Callable[..., Ran]) -> None:
    name = ask("nodes", "--json").json["nodes"][0]["name"]
    ran = ask("node drain", name, "--reason", "bad fan")
    assert re.fullmatch(rf"{name}: done(: \S.*)?; key \S+\n", ran.out)
    await_(lambda: node(ask, name)["state"] in ("draining", "drained"))
    assert node(ask, name)["reason"] == "bad fan"
    key = ran.out.split()[-1]
    await_(lambda: any(a["key"] == key and a["state"] == "done" for a in ask("actions", "--json").json["actions"]))
    assert key in ask("actions").out
    assert ask("actions", "--undo", key).out.startswith(f"{key}: to be undone by undrain:{name}:")
    await_(lambda: node(ask, name)["state"] == "up")


def test_a_node_dies_and_comes_back(ask: Callable[..., Ran]) -> None:
    name = ask("nodes", "--json").json["nodes"][1]["name"]
    assert ask("node fail", name).out == f"{name}: fail done; now down\n"
    assert node(ask, name)["state"] == "down"
    assert ask("node return", name).out == f"{name}: return done; now up\n"
    assert node(ask, name)["state"] == "up"
    assert ask("node return", name).out == f"{name}: return done; still up\n"


def failed(ask: Callable[..., Ran], program: str) -> str:
    """The id of a job that has run this and whose failure was decided on."""
    job_id = ask("submit", "--", "sh", "-c", f"{program}; exit 1").out.strip()
    await_(lambda: ask("why", job_id).code in (1, 3) or "RETRY" in ask("why", job_id).out)
    return job_id


def test_why_of_a_job_notes_how_its_log_ends(ask: Callable[..., Ran]) -> None:
    job_id = failed(ask, "echo 2026-11-20 02:06:13 step 102 loss 0.3")
    said = "NOTE   the log just stops at 02:06:13, with 'step 102 loss 0.3': it says nothing of a failure"
    assert said in ask("why", job_id).out
    (attempt,) = ask("why", job_id, "--json").json["attempts"]
    assert attempt["verdict"]["ending"].startswith("the log just stops at 02:06:13")


def test_why_of_a_job_prints_the_command_to_paste(ask: Callable[..., Ran]) -> None:
    job_id = failed(ask, "echo 'huggingface_hub.errors.GatedRepoError: 401 Client Error.'")
    assert "RUN   export HF_TOKEN=YOUR_TOKEN" in ask("why", job_id).out


def test_the_kill_switch_is_turned_and_turned_back(ask: Callable[..., Ran], state: Path) -> None:
    assert ask("actions --stop").out.startswith("stopped")
    assert (state / "STOP").exists()
    program = "echo 'ConnectionResetError: [Errno 104] Connection reset by peer'; exit 1"
    job_id = ask("submit", "--", "sh", "-c", program).out.strip()
    await_(lambda: "the kill switch is on" in ask("why", job_id).out)
    assert "RESULT" in ask("why", job_id).out
    assert "the kill switch is on: no action is begun (perdure actions --resume)" in ask("jobs").err
    assert ask("actions --resume").out == "resumed\n"
    assert "the kill switch is on" not in ask("jobs").err
    await_(lambda: "requeue  done" in ask("why", job_id).out)
    assert not (state / "STOP").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("why 999999", "job '999999': no such job is known; this is how it was "),
        ("node drain nowhere", "no such node"),
        ("node fail nowhere", "no such node"),
        ("actions --undo nothing", "no such action"),
        ("actions --withhold nothing", "no such action"),
        ("jobs --status sleeping", "not one of 'pending'"),
        ("submit --nodes 99 -- true", ""),
    ],
)
def test_what_the_service_refuses_is_one_line_and_2(ask: Callable[..., Ran], command: str, words: str) -> None:
    first, _, rest = command.partition(" ")
    ran = ask(first, *rest.split()) if first == "submit" else ask(command)
    assert ran.code == 2
    assert words in ran.complaint


def test_a_wrong_token_is_refused(ask: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TOKEN", "wrong")
    ran = ask("jobs")
    assert ran.code == 2
    assert "token" in ran.complaint


def test_a_viewer_may_look_but_not_act(ask: Callable[..., Ran], state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TOKEN", TokenBook(state).mint("bob", Role.VIEWER))
    assert ask("jobs").code == 0
    ran = ask("actions --stop")
    assert ran.code == 2
    assert "operator" in ran.complaint
    assert not (state / "STOP").exists()


# -- no service, or one that cannot start


def test_without_a_service_a_command_says_how_to_start_it(perdure: Callable[..., Ran], home: Path) -> None:
    for command in ("jobs", "nodes", "actions", "why 1", "node drain n1", "submit true"):
        ran = perdure(*command.split())
        assert ran.code == 2
        state = home / ".local/state/perdure"
        what = "no service runs with this state directory"
        instead = "Where it runs with another state directory, name that: --state DIR"
        assert ran.complaint == f"{state}: {what}. Start it: perdure up. {instead}."
    other = home / "x"
    assert perdure("jobs", "--state", "x").complaint == f"{other}: {what}. Start it: perdure up --state {other}."


def test_a_service_that_died_is_to_be_started_again_but_can_be_stopped(perdure: Callable[..., Ran], home: Path) -> None:
    ServiceFile("http://127.0.0.1:9", 1, "t").write(home)
    ran = perdure("jobs", "--state", str(home))
    assert ran.code == 2
    assert "does not answer (" in ran.complaint
    assert ran.complaint.endswith(f"Start it: perdure up --state {home}.")
    stopped = perdure("actions", "--stop", "--state", str(home))
    assert (stopped.code, stopped.out.splitlines()[0]) == (0, "no service answers: it counts for the next one")
    assert (home / "STOP").read_text().startswith("stopped by ")
    assert perdure("actions", "--resume", "--state", str(home)).code == 0
    assert not (home / "STOP").exists()


SWITCHES = (("actions", "--stop"), ("actions", "--resume"), ("policy", "off"), ("policy", "on"))


@pytest.mark.parametrize(("name", "where"), [("PERDURE_URL", "http://127.0.0.1:9"), ("PERDURE_SOCKET", "/no/socket")])
def test_another_service_that_does_not_answer_is_not_called_stopped(
    perdure: Callable[..., Ran], home: Path, monkeypatch: pytest.MonkeyPatch, name: str, where: str
) -> None:
    """The file beside the service of this machine stops that one alone."""
    (home / "tokens.json").write_text("{}")
    monkeypatch.setenv(name, where)
    monkeypatch.setenv("PERDURE_TOKEN", "t")
    for switch in SWITCHES:
        ran = perdure(*switch, "--state", str(home))
        assert (ran.code, ran.out) == (2, "")
        assert f"Check {name}" in ran.complaint
    assert [path.name for path in home.iterdir()] == ["tokens.json"]


def test_a_directory_of_no_service_stops_nothing_and_says_so(perdure: Callable[..., Ran], home: Path) -> None:
    for switch in SWITCHES:
        ran = perdure(*switch, "--state", str(home))
        assert (ran.code, ran.out) == (2, "")
        assert ran.complaint.startswith(f"{home}: no service runs with this state directory")
    assert not list(home.iterdir())


def test_a_switch_is_turned_by_a_user_whose_name_is_no_text(
    perdure: Callable[..., Ran], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ServiceFile("http://127.0.0.1:9", 1, "t").write(home)
    monkeypatch.setenv("LOGNAME", "\udcff")
    assert [perdure(*switch, "--state", str(home)).code for switch in SWITCHES] == [0, 0, 0, 0]


def test_a_port_that_is_taken_is_named(perdure: Callable[..., Ran], home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = perdure("up", "--no-demo", "--port", str(port))
    assert ran.code == 2
    assert ran.complaint.startswith(f"127.0.0.1:{port}: ")
    assert "--port" in ran.complaint


def test_a_state_directory_that_cannot_be_written_is_named(perdure: Callable[..., Ran], home: Path) -> None:
    (home / "file").write_text("")
    for path in (home / "file", home / "file" / "below", Path("/proc/perdure")):
        ran = perdure("up", "--no-demo", "--port", "0", "--state", str(path))
        assert ran.code == 2
        assert ran.complaint.startswith(f"{path}: cannot be written")
        assert "--state" in ran.complaint


def test_slurm_must_be_in_the_path(perdure: Callable[..., Ran], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    ran = perdure("up", "--cluster", "slurm", "--port", "0")
    assert ran.code == 2
    assert "not found in PATH. Run Perdure where Slurm's client tools are installed." in ran.complaint


def test_an_exception_is_raised_listed_and_told_step_by_step(ask: Callable[..., Ran], tmp_path: Path) -> None:
    job = ask("submit --json", "--", "sleep", "600").json["job_id"]
    await_(lambda: state_of(ask, job) == "running")
    assert ask(f"events {job}").out == f"No exceptions of job {job}.\n"
    raised = ask(f"raise --severity 1 --type app.nan {job} --json", "--", '{"rank": 3, "step": "1200"}').json
    assert raised["state"] == "in_chain"
    again = ask(f"raise --severity 1 --type app.nan {job}")
    assert "seen 2 times" in again.out
    (found,) = ask(f"events {job} --json").json["exceptions"]
    assert (found["subject"]["rank"], found["subject"]["step"], found["repeats"]) == ([3], "1200", 1)
    told = ask(f"events {job}").out
    assert ask(f"events {raised['id']}").out == told
    assert "app.nan  severity 1" in told
    assert "raised by operator:" in told
    assert "app.nan" in ask("events --open").out
    assert ask("events --type storage --json").json["exceptions"] == []
    host, component = found["origin"]["host"], found["origin"]["component"]
    assert (host, component) == (socket.gethostname(), "cli")
    refused = ask(f"raise --type app.nan {job}", "--", '{"incarnation": 99}')
    assert (refused.code, "never started" in refused.err) == (2, True)


def test_an_exception_of_a_job_that_has_ended_is_withdrawn_with_the_reason(ask: Callable[..., Ran]) -> None:
    job = ask("submit", "--", "true").out.strip()
    await_(lambda: state_of(ask, job) == "completed")
    assert ask(f"raise --type app.nan {job}").out.endswith(": withdrawn: what it is about has ended\n")


def test_what_is_raised_once_more_under_its_id_is_no_repeat(ask: Callable[..., Ran]) -> None:
    ids = [ask("raise --type site.fan --severity 6 --node n2 --id fan-2").out for _ in range(2)]
    assert ids[0] == ids[1] == "fan-2: handled: written down; nothing is to be done\n"
    (found,) = [one for one in ask("events --type site --json").json["exceptions"] if one["id"] == "fan-2"]
    assert found["repeats"] == 0


def test_who_raises_is_told_what_was_said_last(ask: Callable[..., Ran]) -> None:
    assert "handled: n3 is to get no new work" in ask("raise --type gpu.fan --node n3").out


def test_a_node_that_is_not_known_is_refused(ask: Callable[..., Ran]) -> None:
    ran = ask("raise --type gpu.xid79 --node n99")
    assert (ran.code, ran.complaint.startswith("node n99: no such node is known.")) == (2, True)


def test_an_unknown_jobs_exceptions_are_refused(ask: Callable[..., Ran]) -> None:
    ran = ask("events 777")
    assert (ran.code, ran.out, "777" in ran.complaint) == (2, "", True)
    ran = ask("events local/777#1:job.failed")
    assert (ran.code, "no such exception is known" in ran.complaint) == (2, True)


def test_an_exception_about_no_job_takes_its_context_too(ask: Callable[..., Ran]) -> None:
    raised = ask("raise --type site.fan --severity 5 --node n1 --json", "--", '{"note": "slow"}').json
    (found,) = [one for one in ask("events --type site --json").json["exceptions"] if one["id"] == raised["id"]]
    assert (found["note"], found["subject"]["node"], found["subject"]["job"]) == ("slow", ["n1"], "")


HEALTH_EVENT = """{"agent": "gpu-health-monitor", "componentClass": "GPU", "checkName": "GpuXidError", "isFatal": true,
    "errorCode": ["79"], "nodeName": "n3", "message": "GPU has fallen off the bus", "version": 1}"""


def test_what_another_program_wrote_is_raised_once_however_often_it_is_sent(
    ask: Callable[..., Ran], tmp_path: Path
) -> None:
    file = tmp_path / "event.json"
    file.write_text(HEALTH_EVENT)
    assert "torchelastic" in ask(f"raise --from nonsense --file {file}").err
    for _ in range(2):
        assert ask(f"raise --from nvsentinel --file {file}").out.strip() == "1 raised, 0 refused, 0 skipped"
    (found,) = [one for one in ask("events --json").json["exceptions"] if "xid79" in one["type"]]
    assert (found["subject"]["node"], found["repeats"]) == (["n3"], 0)


def test_a_state_of_jobs_is_one_of_those_that_there_are() -> None:
    assert set(get_args(Status)) == set(JobState)


def test_no_route_of_the_api_and_no_token_stands_in_what_a_terminal_shows(
    ask: Callable[..., Ran], perdure: Callable[..., Ran], state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in ("jobs --user " + "u" * 5000, "node drain n1/..", "learn --rollback --now", "why .", "events ..."):
        first, *rest = command.split()
        ran = ask(first, *rest)
        assert ran.code == 2
        assert "/api/" not in ran.err
        assert "query." not in ran.err
        assert "{" not in ran.err
    monkeypatch.setenv("PERDURE_TOKEN", "secret\nsecret")
    ran = ask("jobs")
    assert (ran.code, "secret" in ran.err) == (2, False)
    monkeypatch.delenv("PERDURE_TOKEN")
    monkeypatch.setenv("PERDURE_URL", f"{ServiceFile.read(state).url}/nowhere")
    assert "/api/" not in perdure("jobs").err


def test_a_list_of_nothing_says_so(ask: Callable[..., Ran]) -> None:
    assert ask("jobs", "--status", "suspended").out == "No such jobs.\n"
    assert ask("jobs", "--user", "nobody-at-all").out == "No such jobs.\n"
