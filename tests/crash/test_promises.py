"""What was answered "done" is there after a power cut, and a cut on the way leaves what was before, or that."""

import ast
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

import perdure
from perdure import durable
from perdure.errors import Fenced, NotFound
from perdure.job.checkpoint import checkpointed
from perdure.job.fence import claim
from perdure.model.identity import AttemptId
from perdure.model.output import Output
from perdure.service.access.auth import Identity, Role, TokenBook
from perdure.service.access.sessions import Sessions
from perdure.service.live_policy.switch import PolicySwitch
from perdure.service.store.database import Store
from perdure.service.whatif.comparison import Comparison, Stage
from perdure.service.whatif.comparison_store import RESULT, ComparisonStore
from perdure.service.whatif.question import ComparisonQuestion
from perdure.service.workers.kept_logs import KeptLogs
from perdure.service.workers.kill_switch import KillSwitch
from tests.crash.files import put, watched

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's /proc")

ADA = Identity("ada", Role.OPERATOR)
ATTEMPT = AttemptId("c", "7", 3)
OUTPUT = Output.of(b"epoch 3\nCUDA error\n", "/home/ada/job.out")
cookies: dict[str, str] = {}
frozen: list[AbstractContextManager[Path]] = []  # is not to end: that would take away what it prepared
NOTHING: Callable[[Path], object] = lambda _: None  # noqa: E731


@dataclass(frozen=True)
class Promise:
    """`act` answers "done"; `is_kept` says so of a directory that was left. What `before` did is synced by then."""

    act: Callable[[Path], object]
    is_kept: Callable[[Path], bool]
    stood: Callable[[Path], bool]  # what was there before is there still, whole
    before: Callable[[Path], object] = NOTHING


def tokens(place: Path) -> list[str]:
    return [entry.user for entry in TokenBook(place).entries()]


def revoke(place: Path, user: str) -> None:
    book = TokenBook(place)
    book.revoke(next(entry.id for entry in book.entries() if entry.user == user))


def log_in(place: Path) -> None:
    cookies[place.name] = Sessions(TokenBook(place)).open(ADA)


def log_out(place: Path) -> None:
    Sessions(TokenBook(place)).close(cookies[place.name])


def is_logged_in(place: Path) -> bool:
    """Whether anybody is: only these tests log in."""
    return any(Sessions(TokenBook(place)).find(cookie) for cookie in cookies.values())


def is_fenced(place: Path) -> bool:
    try:
        claim(place / ".perdure/hpc/7", "7", 1)
    except Fenced:
        return True
    return False


def next_token(place: Path) -> int:
    return claim(place / ".perdure/hpc/7", "7", 9).token


def prepare(place: Path) -> None:
    """An older start, frozen while it prepares a checkpoint."""
    frozen.append(claim(place / ".perdure/hpc/7", "7", 1).stage(place))
    frozen[-1].__enter__()


def stages(place: Path) -> list[Path]:
    return [path for path in place.glob(".perdure-1-*") if ".revoked-" not in path.name]


def publish(path: Path, data: bytes) -> None:
    with checkpointed(path) as draft:
        draft.write_bytes(data)


def publish_shards(path: Path, data: bytes) -> None:
    with checkpointed(path) as draft:
        draft.mkdir()
        (draft / "shard-0").write_bytes(data)


def holds(path: Path, *data: bytes) -> bool:
    return path.is_file() and path.read_bytes() in data


def kept_log(place: Path) -> bytes | None:
    return KeptLogs(place).read(ATTEMPT, 100_000)


def store(place: Path) -> ComparisonStore:
    return ComparisonStore(place / "whatif", 20, 1.0)


def ask(place: Path, number: int) -> Comparison:
    asked = Comparison(
        f"{number:016x}", "ada", "jobs.csv", ComparisonQuestion(cluster="2x8", policies=("fifo",)), Stage.DONE, 1.0
    )
    store(place).put(asked)
    return asked


def comparisons(place: Path) -> list[int]:
    return sorted(int(each.id, 16) for each in store(place).all())


def answer(place: Path) -> None:
    made = place / "made"
    made.mkdir()
    (made / RESULT).write_bytes(b"{}")
    store(place).take_answers(ask(place, 1).id, made)


def answered(place: Path) -> bytes:
    with suppress(NotFound):
        return store(place).answer(f"{1:016x}", RESULT)
    return b""


PROMISES: dict[str, Promise] = {
    "a token is minted": Promise(
        lambda at: TokenBook(at).mint("bob", Role.VIEWER),
        lambda at: tokens(at) == ["ada", "bob"],
        lambda at: tokens(at) == ["ada"],
        lambda at: TokenBook(at).mint("ada", Role.OPERATOR),
    ),
    "a token is revoked": Promise(
        lambda at: revoke(at, "ada"),
        lambda at: tokens(at) == [],
        lambda at: tokens(at) == ["ada"],
        lambda at: TokenBook(at).mint("ada", Role.OPERATOR),
    ),
    "a browser is logged in": Promise(log_in, is_logged_in, lambda at: not is_logged_in(at)),
    "a browser is logged out": Promise(log_out, lambda at: not is_logged_in(at), is_logged_in, log_in),
    "the kill switch is on": Promise(
        lambda at: KillSwitch(at).turn("ada", on=True),
        lambda at: (at / "STOP").exists(),
        lambda at: not (at / "STOP").exists(),
    ),
    "the kill switch is off": Promise(
        lambda at: KillSwitch(at).turn("ada", on=False),
        lambda at: not (at / "STOP").exists(),
        lambda at: (at / "STOP").exists(),
        lambda at: KillSwitch(at).turn("ada", on=True),
    ),
    "the policy in force is off": Promise(
        lambda at: PolicySwitch(at).turn(on=False, by="ada"),
        lambda at: PolicySwitch(at).is_off,
        lambda at: not PolicySwitch(at).is_off,
    ),
    "the policy in force is on": Promise(
        lambda at: PolicySwitch(at).turn(on=True, by="ada"),
        lambda at: not PolicySwitch(at).is_off,
        lambda at: PolicySwitch(at).is_off,
        lambda at: PolicySwitch(at).turn(on=False, by="ada"),
    ),
    "a newer start has claimed": Promise(
        lambda at: claim(at / ".perdure/hpc/7", "7", 2),
        is_fenced,
        lambda at: not is_fenced(at),
        lambda at: claim(at / ".perdure/hpc/7", "7", 1),
    ),
    "the first start has claimed": Promise(
        lambda at: claim(at / ".perdure/hpc/7", "7", 1), lambda at: next_token(at) == 2, lambda at: next_token(at) == 1
    ),
    "what an older start prepares is taken away": Promise(
        lambda at: claim(at / ".perdure/hpc/7", "7", 2), lambda at: not stages(at), lambda at: bool(stages(at)), prepare
    ),
    "a checkpoint is published": Promise(
        lambda at: publish(at / "step.pt", b"new" * 4096),
        lambda at: holds(at / "step.pt", b"new" * 4096),
        lambda at: holds(at / "step.pt", b"old"),
        lambda at: publish(at / "step.pt", b"old"),
    ),
    "the first checkpoint is published": Promise(
        lambda at: publish(at / "run/7/step.pt", b"new"),
        lambda at: holds(at / "run/7/step.pt", b"new"),
        lambda at: not (at / "run/7/step.pt").exists(),
    ),
    "a checkpoint of many files is published": Promise(
        lambda at: publish_shards(at / "step", b"new" * 4096),
        lambda at: holds(at / "step/shard-0", b"new" * 4096),
        lambda at: holds(at / "step/shard-0", b"old"),
        lambda at: publish_shards(at / "step", b"old"),
    ),
    "a log is kept": Promise(
        lambda at: KeptLogs(at).keep(ATTEMPT, OUTPUT),
        lambda at: b"CUDA error" in (kept_log(at) or b""),
        lambda at: not KeptLogs(at).has(ATTEMPT),
    ),
    "a comparison is asked for": Promise(
        lambda at: ask(at, 2),
        lambda at: comparisons(at) == [1, 2],
        lambda at: comparisons(at) == [1],
        lambda at: ask(at, 1),
    ),
    "a comparison is answered": Promise(
        answer, lambda at: answered(at) == b"{}", lambda at: answered(at) == b"", lambda at: ask(at, 1)
    ),
    "a state directory is made": Promise(
        lambda at: Store.open(at / "var/lib/perdure", "c").close(),
        lambda at: (at / "var/lib/perdure").is_dir(),
        lambda at: True,
    ),
}


LOST = {
    "backends/local/paths.py": "where the daemon listens, which is gone with it",
    "cli/emulate_demo.py": "the demonstration's own",
    "cli/follow.py": "how far a log was read: it is read again",
    "cli/study_successors.py": "arrays of a study, calculated again where they are not there",
    "cli/kept.py": "looks that are kept for an hour",
    "cli/manual.py": "manual pages, made again by the same command",
    "cli/model_layers.py": "the answer of a program that is waited for",
    "cli/onnx_layers.py": "the answer of a program that is waited for",
    "cli/picture_file.py": "pictures, made again by the same command",
    "cli/survey.py": "pictures, made again by the same command",
    "demo/programs/mini.py": "the demonstration's own",
    "demo/workspace.py": "the demonstration's own",
    "emulation/process.py": "what a run came to, told again by the same command",
    "job/files.py": "what happened; it decides nothing",
    "job/gang.py": "what launchers tell each other while they live",
    "job/leave.py": "what torchrun is told while it lives",
    "service/waits/refit.py": "made anew where it cannot be read",
    "service/whatif/planned.py": "an answer on its way; it is synced where it is kept",
    "service/whatif/uploads.py": "asked for again with a comparison that was broken off",
    "service/whatif/worker.py": "an answer on its way; it is synced where it is kept",
    "service/workers/instance.py": "who acts, in a directory that ends with the machine's run",
    "simulation/elastic_report.py": "pictures, made again by the same command",
    "simulation/report.py": "pictures, made again by the same command",
}
KEPT = {"durable.py", "job/checkpoint.py", "job/fence.py", "service/live_policy/switch.py",
        "service/whatif/comparison_store.py", "service/workers/kill_switch.py"}  # fmt: skip


def test_whoever_puts_a_file_in_place_has_a_promise_above_or_says_why_it_may_be_lost() -> None:
    package = Path(perdure.__path__[0])
    writers = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if any(_places(path))}
    assert writers == LOST.keys() | KEPT


WRITING = ("write_text", "write_bytes", "rename", "hardlink_to", "symlink_to")


def _places(path: Path) -> Iterator[ast.Call]:
    """Calls that put a file, or a name of one, in place."""
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            name, of_os = call.func.attr, ast.unparse(call.func.value) == "os"
            is_path_s = name == "replace" and len(call.args) == 1 and not call.keywords  # texts take two words
            if is_path_s or name in WRITING or (of_os and name in ("replace", "link", "symlink")):
                yield call


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    cookies.clear()
    yield
    while frozen:
        frozen.pop().__exit__(None, None, None)


@pytest.mark.parametrize("name", PROMISES)
def test_what_was_done_survives_a_power_cut_and_what_was_not_leaves_what_was_before(name: str, tmp_path: Path) -> None:
    promise, place, number = PROMISES[name], tmp_path / "at-work", count()
    place.mkdir(mode=0o700)
    promise.before(place)
    with watched(place) as files:
        promise.act(place)
        on_the_way, done = files.cuts, files.left()
    assert on_the_way, "nothing was written"
    for left in on_the_way:
        after = put(left, tmp_path / str(next(number)))
        assert promise.stood(after) or promise.is_kept(after), f"a cut on the way left {left}"
    for left in done:
        assert promise.is_kept(put(left, tmp_path / str(next(number)))), f"a cut after it was done left {left}"


def test_what_is_not_synced_is_lost(tmp_path: Path) -> None:
    """The watch itself: each of the ways in which writers forget something."""
    place = tmp_path / "at-work"
    place.mkdir()
    (place / "old").write_bytes(b"1")
    with watched(place) as files:
        (place / "draft").write_bytes(b"2")
        (place / "draft").replace(place / "old")
        assert files.left() == [{"old": b"1"}, {"old": b""}, {"old": b"1"}]
        durable.sync_directory(place)
        assert files.left() == [{"old": b""}, {"old": b""}, {"old": b"2"}]
        (place / "below").mkdir()
        durable.write_whole(place / "below/new", b"3")
        assert files.left()[0] == {"old": b""}
        durable.sync_directory(place)
        assert files.left()[0] == {"old": b"", "below": None, "below/new": b"3"}
