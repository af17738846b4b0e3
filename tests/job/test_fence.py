"""Claims have one order, and a newer one takes the right to write."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.errors import ConfigError, Fenced, StateError
from perdure.job import fence
from perdure.job.fence import Claim, claim, current_claim


def test_the_newer_claim_fences_the_older(tmp_path: Path) -> None:
    first, second = claim(tmp_path, "7", 1), claim(tmp_path, "7", 2)
    assert second.token > first.token
    second.check()
    with pytest.raises(Fenced, match=f"token {first.token} is fenced by token {second.token}"):
        first.check()


def test_an_older_incarnation_cannot_claim_after_a_newer_one(tmp_path: Path) -> None:
    newer = claim(tmp_path, "7", 2)
    with pytest.raises(Fenced, match="incarnation 2 has claimed it, this is 1"):
        claim(tmp_path, "7", 1)
    newer.check()


def test_ranks_of_one_start_share_a_claim(tmp_path: Path) -> None:
    assert claim(tmp_path, "7", 1, "srun:1") == claim(tmp_path, "7", 1, "srun:1")


def test_a_second_start_under_the_same_count_is_newer(tmp_path: Path) -> None:
    """As Slurm has been seen to do after a crash of its controller."""
    first, second = claim(tmp_path, "7", 0, "srun:1"), claim(tmp_path, "7", 0, "srun:2")
    with pytest.raises(Fenced):
        first.check()
    second.check()


def test_starts_of_one_incarnation_are_told_apart_by_their_instants(tmp_path: Path) -> None:
    first, second = claim(tmp_path, "7", 0, "s", start_s=100), claim(tmp_path, "7", 0, "s", start_s=160)
    second.check()
    with pytest.raises(Fenced, match="token"):
        first.check()
    assert claim(tmp_path, "7", 0, "another task's", start_s=160) == second


def test_where_the_instant_is_known_of_one_task_alone_the_start_tells(tmp_path: Path) -> None:
    first = claim(tmp_path, "7", 0, "s", start_s=100)
    assert claim(tmp_path, "7", 0, "s") == first
    assert claim(tmp_path, "7", 0, "another").token == first.token + 1


def test_jobs_of_one_number_on_two_clusters_are_two(tmp_path: Path) -> None:
    claim(tmp_path, "7", 2, cluster="a")
    claim(tmp_path, "7", 1, cluster="b").check()
    claim(tmp_path / "named", "7", 2, cluster="a")
    with pytest.raises(Fenced, match="incarnation 2 has claimed it"):
        claim(tmp_path / "named", "7", 1)  # where no cluster is named it is the same job


def test_a_task_that_joins_a_claim_takes_nothing_away_from_the_others(tmp_path: Path) -> None:
    with claim(tmp_path / "fence", "7", 1, "srun:1").stage(tmp_path) as stage:
        claim(tmp_path / "fence", "7", 1, "srun:1")
        assert stage.exists()


def test_a_stage_is_noted_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who claims in between would not find it."""
    noted = []
    monkeypatch.setattr("pathlib.Path.mkdir", _seen_by(noted, tmp_path / "fence" / "stages"))
    with claim(tmp_path / "fence", "7", 1).stage(tmp_path):
        pass
    assert noted == [1]


def test_the_note_of_a_stage_is_on_the_disk_before_the_stage_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut between the two, who claims next finds what it has to take away."""
    done: list[object] = []
    stages = tmp_path / "fence" / "stages"
    sync, mkdir = os.fsync, Path.mkdir

    def synced(descriptor: int) -> None:
        done.append((os.fstat(descriptor).st_ino, len(list(stages.iterdir()))))
        sync(descriptor)

    def made(self: Path, *given: Any, **named: Any) -> None:
        done.append(self.name)
        mkdir(self, *given, **named)

    mine = claim(tmp_path / "fence", "7", 1)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "mkdir", made)
    with mine.stage(tmp_path) as stage:
        pass
    assert (stages.stat().st_ino, 1) in done[: done.index(stage.name)]


def test_a_claim_is_on_the_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def noted(name: str) -> None:
        real = getattr(os, name)

        def call(*given: Path) -> Any:
            calls.append(name)
            return real(*given)

        monkeypatch.setattr(os, name, call)

    noted("fsync")
    noted("link")
    claim(tmp_path, "7", 1)
    assert calls[-3:] == ["fsync", "link", "fsync"]  # before, the directories that it made


def _seen_by(noted: list[Any], stages: Path, mkdir: Callable[..., None] = Path.mkdir) -> Callable[..., None]:
    """`Path.mkdir`, which counts the notes that there are when a stage is made."""

    def make(self: Path, *given: Any, **named: Any) -> None:
        if self.name.startswith(".perdure-"):
            noted.append(len(list(stages.iterdir())))
        mkdir(self, *given, **named)

    return make


def test_a_successor_job_may_take_the_directory_over(tmp_path: Path) -> None:
    first, second = claim(tmp_path, "900", 3), claim(tmp_path, "901", 1)
    second.check()
    with pytest.raises(Fenced):
        first.check()


def test_a_claim_whose_directory_is_gone_is_fenced(tmp_path: Path) -> None:
    with pytest.raises(Fenced, match="its claim is gone"):
        Claim(tmp_path / "nothing", 1).check()


@given(st.lists(st.integers(1, 6), min_size=1, max_size=30))
def test_the_holder_is_always_the_largest_incarnation_that_came(
    tmp_path_factory: pytest.TempPathFactory, incarnations: list[Any]
) -> None:
    directory, largest, claims = tmp_path_factory.mktemp("fence"), 0, {}
    for incarnation in incarnations:
        if incarnation < largest:
            with pytest.raises(Fenced):
                claim(directory, "7", incarnation)
            continue
        largest = incarnation
        claims[incarnation] = claim(directory, "7", incarnation)
        claims[incarnation].check()
        for older in incarnations:
            if older in claims and older < largest:
                with pytest.raises(Fenced):
                    claims[older].check()


claimants = st.tuples(
    st.sampled_from(("7", "8")),
    st.integers(1, 2),
    st.sampled_from(("", "s")),
    st.sampled_from(("", "a", "b")),
    st.sampled_from((0, 100, 160)),
)


@settings(max_examples=40)
@given(st.lists(claimants, min_size=2, max_size=6))
@example([("7", 1, "", "", 0), ("8", 1, "", "", 0)])
def test_in_one_directory_a_claim_is_joined_by_its_own_start_alone_and_yields_to_all_but_older_ones(
    tmp_path_factory: pytest.TempPathFactory, came: list[Any]
) -> None:
    """Jobs and clusters that share a fence take it from each other; only within a job is there an older one."""
    place = tmp_path_factory.mktemp("fence")
    held: Claim | None = None
    holder = came[0]
    for job, incarnation, start, cluster, start_s in came:
        is_its_job = job == holder[0] and (cluster == holder[3] or not (cluster and holder[3]))
        is_its_count, both = is_its_job and incarnation == holder[1], start_s and holder[4]
        is_older = is_its_job and (incarnation < holder[1] or (is_its_count and 0 < start_s < holder[4]))
        joins = is_its_count and (start_s == holder[4] if both else start == holder[2])
        try:
            mine = claim(place, job, incarnation, start, cluster=cluster, start_s=start_s)
        except Fenced:
            assert held is not None
            assert is_older
            held.check()
            continue
        assert held is None or not is_older
        if held is None or not joins:
            assert mine.token == (held.token + 1 if held else 1)
            if held:
                with pytest.raises(Fenced):
                    held.check()
            held, holder = mine, (job, incarnation, start, cluster, start_s)
        assert mine == held
        mine.check()


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(("one", "two")), st.booleans()), min_size=2, max_size=8))
@example([("one", False), ("two", False), ("one", True)])
def test_jobs_that_publish_into_one_directory_take_away_their_own_older_drafts_alone(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    place = tmp_path_factory.mktemp("jobs")
    starts = {"one": 0, "two": 0}
    drafts: dict[str, list[Path]] = {"one": [], "two": []}
    with ExitStack() as stack:
        for job, is_new_start in [("one", True), ("two", True), *steps]:
            starts[job] += is_new_start
            held = claim(place / "fences" / job, job, starts[job])
            if is_new_start:
                assert not any(draft.exists() for draft in drafts[job])
                drafts[job].clear()
            drafts[job].append(stack.enter_context(held.stage(place)))
            assert all(draft.is_dir() for of_job in drafts.values() for draft in of_job)


def test_claimants_at_once_get_one_token_each(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda start: claim(tmp_path, "7", 1, f"start-{start}"), range(40)))
    tokens = sorted(made.token for made in claims)
    assert tokens == list(range(1, 41))
    for made in claims[:-1]:
        if made.token != 40:
            with pytest.raises(Fenced):
                made.check()


@pytest.mark.parametrize("seen", [0, 3, 40 - fence.KEPT_CLAIMS])
def test_a_claimant_that_was_slow_does_not_take_a_number_that_was_let_go(
    tmp_path: Path, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look and its claim forty others claimed, and the oldest of their claims were let go."""
    for start in range(40):
        claim(tmp_path, "7", 1, str(start))
    looks = iter([seen])
    newest = fence._newest
    monkeypatch.setattr(fence, "_newest", lambda directory: next(looks, newest(directory)))
    made = claim(tmp_path, "7", 2)
    assert made.token == 41
    made.check()


def test_old_claims_are_let_go(tmp_path: Path) -> None:
    for start in range(40):
        claim(tmp_path, "7", 1, str(start))
        (tmp_path / "claims" / "of-an-editor~").touch()  # whatever else lies there is left alone
    (tmp_path / "claims" / "of-an-editor~").unlink()
    assert len(os.listdir(tmp_path / "claims")) == fence.KEPT_CLAIMS
    assert os.listdir(tmp_path / "stages") == []


_CRASHES = """
import os, signal, sys
from pathlib import Path
from perdure.job.fence import claim
base = Path(sys.argv[1])
EVENTS = {"open", "os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir"}
for point in range(1, 500):
    directory = base / str(point)
    old = claim(directory, "7", 1)
    stage = old.stage(base)
    (stage.__enter__() / "draft").write_text("old")
    child = os.fork()
    if child == 0:
        left = [point]
        def die(event, args):
            if event in EVENTS:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(die)
        claim(directory, "7", 2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    held = claim(directory, "7", 2)
    held.check()
    assert held.token == 2, (point, held)
    stages = [p for p in base.glob(f".perdure-1-*") if "revoked" not in p.name]
    assert not stages, (point, stages)
    if status == 0:
        print(point)
        break
"""


def test_killed_at_any_point_a_claim_is_whole_or_not_there(tmp_path: Path) -> None:
    """A claimant is killed before each of its file operations in turn; the next one always succeeds, and revokes."""
    done = subprocess.run([sys.executable, "-c", _CRASHES, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 8  # so many points there were


def test_a_damaged_claim_is_named(tmp_path: Path) -> None:
    claim(tmp_path, "7", 1)
    (tmp_path / "claims" / "1").write_text("{")
    with pytest.raises(StateError, match="damaged"):
        claim(tmp_path, "7", 2)


def test_a_directory_among_the_notes_stops_no_claim(tmp_path: Path) -> None:
    claim(tmp_path, "7", 1)
    (tmp_path / "stages" / f"1-{'0' * 32}").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    assert claim(tmp_path, "7", 2).token == 2
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_place_that_is_no_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot be used: Not a directory"):
        claim(tmp_path / "file", "7", 1)


def test_the_claim_of_this_process_stands_in_its_environment(tmp_path: Path) -> None:
    assert current_claim({}) is None
    environment = {"PERDURE_FENCE_DIR": str(tmp_path), "PERDURE_FENCE_TOKEN": "3"}
    assert current_claim(environment) == Claim(tmp_path, 3)
    assert [current_claim({name: value}) for name, value in environment.items()] == [None, None]
    for token in ("three", "-1", "9" * 5000):
        with pytest.raises(ConfigError, match=r"^PERDURE_FENCE_TOKEN: '[^']{1,80}' is not a token\. Leave it as"):
            current_claim({**environment, "PERDURE_FENCE_TOKEN": token})


def test_a_frozen_claimant_holds_nobody_up(tmp_path: Path) -> None:
    """A process stopped in the middle of a publish cannot keep the next incarnation from claiming."""
    code = (
        "import sys; from perdure.job import claim\n"
        "with claim(sys.argv[1], '7', 1).stage(__import__('pathlib').Path(sys.argv[1])) as stage:\n"
        "    (stage / 'draft').write_text('x'); print('ready', flush=True); sys.stdin.read()"
    )
    old = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert old.stdout.readline() == "ready\n"
        old.send_signal(signal.SIGSTOP)
        claim(tmp_path, "7", 2).check()
        assert not list(tmp_path.glob(".perdure-*"))
    finally:
        old.kill()
        old.communicate()


@pytest.fixture
def treasure(tmp_path: Path) -> Path:
    """A directory of this user's that no fence has made."""
    path = tmp_path / "data" / "treasure"
    path.mkdir(parents=True)
    (path / "weights").write_text("years of work")
    return path


@pytest.mark.parametrize("note", ["0-evil", "0-treasure"])
def test_a_note_moves_nothing_but_a_stage(tmp_path: Path, treasure: Path, note: str) -> None:
    """Whoever may write into the fence may leave a note; it names no way to other directories."""
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages" / note).write_bytes(os.fsencode(treasure))
    claim(tmp_path, "7", 1)
    assert (treasure / "weights").read_text() == "years of work"


def test_a_note_that_names_no_whole_path_moves_nothing_from_where_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stage = Path(".perdure-0-a")
    stage.mkdir()
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages" / "0-a").write_bytes(os.fsencode(stage))
    claim(tmp_path, "7", 1)
    assert stage.is_dir()


def test_a_note_that_is_a_link_and_a_stage_that_is_one_are_left_alone(tmp_path: Path, treasure: Path) -> None:
    (tmp_path / "stages").mkdir()
    (tmp_path / "note").write_bytes(os.fsencode(treasure.parent / ".perdure-0-a"))
    (tmp_path / "stages" / "0-a").symlink_to(tmp_path / "note")
    (treasure.parent / ".perdure-0-a").mkdir()
    (tmp_path / "stages" / "0-b").write_bytes(os.fsencode(treasure.parent / ".perdure-0-b"))
    (treasure.parent / ".perdure-0-b").symlink_to(treasure)
    claim(tmp_path, "7", 1)
    assert (treasure.parent / ".perdure-0-a").is_dir()
    assert (treasure.parent / ".perdure-0-b").is_symlink()
    assert (treasure / "weights").read_text() == "years of work"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")
@pytest.mark.parametrize("whose", ["note", "stage"])
def test_what_is_another_users_is_left_alone(tmp_path: Path, whose: str) -> None:
    (tmp_path / "stages").mkdir()
    stage, note = tmp_path / ".perdure-0-a", tmp_path / "stages" / "0-a"
    stage.mkdir()
    note.write_bytes(os.fsencode(stage))
    os.chown({"note": note, "stage": stage}[whose], 65534, 65534)
    claim(tmp_path, "7", 1)
    assert stage.is_dir()


@pytest.mark.timeout(30)
def test_a_note_that_is_a_fifo_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "stages").mkdir()
    os.mkfifo(tmp_path / "stages" / "0-a")
    claim(tmp_path, "7", 1).check()


def test_whatever_else_lies_among_the_notes_every_older_stage_is_taken_away(tmp_path: Path) -> None:
    """Directories are listed in any order."""
    claim(tmp_path, "7", 1)
    for number in range(20):
        (tmp_path / "stages" / f"0-evil{number}").write_bytes(os.fsencode(tmp_path / f"elsewhere{number}"))
        (tmp_path / "stages" / f"9-newer{number}").write_bytes(os.fsencode(tmp_path / f".perdure-9-newer{number}"))
    for number in range(5):
        (tmp_path / f".perdure-1-{number}").mkdir()
        (tmp_path / "stages" / f"1-{number}").write_bytes(os.fsencode(tmp_path / f".perdure-1-{number}"))
    claim(tmp_path, "7", 2)
    assert not list(tmp_path.glob(".perdure-*"))
    assert not list((tmp_path / "stages").glob("1-*"))


def test_a_stage_of_an_older_claim_is_taken_away_with_its_note(tmp_path: Path) -> None:
    with pytest.raises(Fenced), claim(tmp_path, "7", 1).stage(tmp_path) as stage:  # noqa: PT012 - the order is the point
        (stage / "draft").write_text("old")
        newer = claim(tmp_path, "7", 2)
        assert not list(tmp_path.glob(".perdure-*"))
        assert os.listdir(tmp_path / "stages") == []
        newer.check()
        raise Fenced("", "", "")
