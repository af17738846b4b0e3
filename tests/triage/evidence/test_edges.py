"""Small parts of triage at their limits: exactly there, and one step beside it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.model.output import IS_NOT_THERE, Absent, Output, OutputFile, OutputKind, Why
from perdure.triage.evidence import context
from perdure.triage.evidence.context import Circumstance, Context, TrainingProgress, circumstances, shift_of
from perdure.triage.evidence.ending import ending
from perdure.triage.evidence.gpu_memory import GpuMemory, gpu_memory
from perdure.triage.evidence.likeness import Likeness
from perdure.triage.evidence.reached import reached
from perdure.triage.evidence.rule import Cause
from perdure.triage.remarks import MOST_REMARKS, remarks_on
from perdure.triage.text.logtext import LogText
from perdure.triage.text.quantities import GIB
from perdure.triage.text.when import DAY_S, Form, Stamp, comparable, stamp_of
from perdure.triage.verdict import Bound, CauseRole, Evidence, Label, Reached, Verdict
from tests.copying import replace

# -- circumstances


def named(
    category: str = "net",
    progress: TrainingProgress = TrainingProgress(),  # noqa: B008
    bound: Bound = Bound.NOTHING,
    name: str = "x",
    p: float = 0.5,
    **known: Any,
) -> list[Any]:
    found = circumstances(Cause(name, category, p, bound=bound), progress, Context(**known))
    return [each.name for each in found]


@pytest.mark.parametrize(
    ("progress", "known", "name"),
    [
        (TrainingProgress(None, 1000), {}, "late-collective"),
        (TrainingProgress(None, 999), {}, None),
        (TrainingProgress(None, 5), {}, None),
        (TrainingProgress(None, 4), {}, "first-collective"),
        (TrainingProgress(None, 0), {}, "first-collective"),
        (TrainingProgress(1000, 4), {}, "first-collective"),  # what the message itself says counts before steps
        (TrainingProgress(1000), {}, "far-along"),
        (TrainingProgress(999), {}, None),
        (TrainingProgress(999), {"saved_since_start": True}, "saved-before"),
        (TrainingProgress(), {"saved_since_start": False}, None),
        (TrainingProgress(), {"ran_s": 119.5}, "at-the-start"),
        (TrainingProgress(0), {"ran_s": 119.5}, "at-the-start"),
        (TrainingProgress(1), {"ran_s": 119.5}, None),
        (TrainingProgress(), {"ran_s": 120.0}, None),
        (TrainingProgress(), {"ran_s": 1799.5}, None),
        (TrainingProgress(), {"ran_s": 1800.0}, "ran-long"),
        (TrainingProgress(999), {"ran_s": 1800.0}, "ran-long"),
    ],
)
def test_how_far_a_job_had_come(progress: TrainingProgress, known: Mapping[str, Any], name: str | None) -> None:
    assert named(progress=progress, **known) == ([name] if name else [])
    assert named("shape", progress, **known) == []  # a wrong shape is not a matter of the set-up


@pytest.mark.parametrize(
    ("progress", "ran_s", "says"),
    [
        (TrainingProgress(), 5400.0, "it had run for 90 min"),
        (TrainingProgress(), 7.0, "it failed 7 s after its start, before any step"),
        (TrainingProgress(4711, None, 1), None, "it had come to step 4711"),
        (TrainingProgress(999, None, 7), None, "it had come to epoch 7"),
    ],
)
def test_how_far_it_came_is_said_in_its_unit(progress: TrainingProgress, ran_s: float | None, says: str) -> None:
    (found,) = circumstances(Cause("x", "net", 0.5), progress, Context(ran_s))
    assert found.says == says


def test_the_collective_that_failed_is_not_among_those_that_worked() -> None:
    (found,) = circumstances(Cause("x", "net", 0.5), TrainingProgress(None, 48113), Context())
    assert found.says == "it failed at collective number 48113, and those before had worked"


@pytest.mark.parametrize(("p", "bears"), [(0.09, False), (0.1, True), (0.97, True), (0.98, False)])
def test_only_a_cause_that_is_not_sure_of_itself_is_moved(p: float, bears: bool) -> None:
    assert bool(named(p=p, ran_s=1800.0)) is bears


def test_others_count_by_the_category_and_where_the_cause_is_a_service() -> None:
    assert named(others_on_node=1) == ["neighbours"]
    assert named(others_elsewhere=(("bob", Likeness("net", "x")),), bound=Bound.SERVICE) == ["others-alike"]
    assert named(others_elsewhere=(("bob", Likeness("fs", "x")),), bound=Bound.SERVICE) == []
    assert named(others_elsewhere=(("bob", Likeness("net", "x")),), bound=Bound.NODE) == []


@pytest.mark.parametrize(
    ("category", "free", "name"),
    [
        ("fs", (1 << 20) - 1, ["disk-full"]),
        ("fs", 1 << 20, ["disk-free"]),
        ("ckpt", (1 << 20) - 1, ["disk-full"]),
        ("ckpt", 1 << 20, []),
        ("net", 0, []),
        ("fs", None, []),
    ],
)
def test_room_on_the_disk(category: str, free: int | None, name: list[str]) -> None:
    assert named(category, free_bytes=free) == name


@pytest.mark.parametrize(("rule", "gpus", "found"), [("gpu-unavailable", 0, True), ("gpu-unavailable", 1, False)])
def test_a_job_that_asked_for_no_gpu_finds_none(rule: str, gpus: int, found: bool) -> None:
    assert named("cuda_env", name=rule, gpus=gpus) == (["no-gpus"] if found else [])
    assert named("cuda_env", name="other", gpus=0) == []
    assert named("cuda_env", name=rule) == []


def test_shifts_add_up_and_are_bounded_on_both_sides() -> None:
    def of(*shifts: float) -> float:
        return shift_of(tuple(Circumstance("x", "x", shift) for shift in shifts))

    assert (of(), of(1.0, 0.5), of(1.0, -0.5)) == (0.0, 1.5, 0.5)
    assert (of(2.0, 2.0), of(-2.0, -2.0)) == (context.MAX_SHIFT, -context.MAX_SHIFT)


# -- whose memory fills a card


@pytest.mark.parametrize(
    ("own", "wanted", "others", "is_held"),
    [
        (37, 60, 4, False),  # of 40 GiB, in tenths: it would not fit alone
        (300, 88, 40, True),
        (300, 89, 40, False),  # 97 of 100 can be used
        (100, 10, 40, True),
        (100, 10, 39, False),  # a tenth of the card
    ],
)
def test_a_card_is_held_by_others_where_it_would_fit_alone_and_they_have_a_tenth(
    own: int, wanted: int, others: int, is_held: bool
) -> None:
    tenth = GIB // 10
    memory = GpuMemory(400 * tenth, 0, own * tenth, wanted * tenth, others * tenth)
    assert memory.is_held_by_others is (is_held and own + wanted <= 388)


@pytest.mark.parametrize(("others", "is_held"), [(GIB, True), (GIB - 1, False)])
def test_of_a_small_card_others_have_a_gibibyte_at_least(others: int, is_held: bool) -> None:
    assert GpuMemory(4 * GIB, 0, GIB, 0, others).is_held_by_others is is_held


@pytest.mark.parametrize(
    ("told", "size"),
    [
        ("2 bytes", 2), ("2 KB", 2000), ("2.5 MB", 2_500_000), ("1 GB", 10**9), ("1 KiB", 1024), ("1 MiB", 1 << 20),
        ("1 GiB", GIB), ("1 TiB", 1 << 40), ("3 M", 3 << 20), ("2 TB", 2 * 10**12), ("512", 512),
    ],
)  # fmt: skip
def test_each_unit_of_memory(told: str, size: int) -> None:
    memory = gpu_memory(f"CUDA out of memory. Tried to allocate {told} (GPU 0; 8 GiB total capacity; 1 GiB cached)")
    assert memory is not None
    assert memory.wanted == size


# -- how a log ends

CRASH = Evidence(4, "Segmentation fault", CauseRole.ROOT, "r")


def ends(log: str, category: str = "native_crash", evidence: tuple[Evidence, ...] = (CRASH,)) -> str:
    return ending(LogText.of(log.encode()), Verdict(Label.UNSURE, 0.5, category, "", evidence=evidence))


def test_work_that_was_done_before_a_crash_is_told_unless_steps_follow() -> None:
    done = "step 1\nTraining complete\n{}\nSegmentation fault\n"
    assert "the work was done (line 2: 'Training complete')" in ends(done.format("bye"))
    assert ends(done.format("step 2 loss 0.1")) == ""
    assert ends(done.format("bye"), category="shape") == ""
    assert ends(done.format("bye"), evidence=(Evidence(4, "ValueError: x", CauseRole.ROOT, "r"),)) == ""
    assert "ends with its work done" in ends(
        done.format("bye"), evidence=(Evidence(0, "signal 11", CauseRole.ROOT, "r"),)
    )
    assert ends("step 1\nTraining did not finish: not done\nbye\nSegmentation fault\n") == ""
    assert ends("") == ""


@pytest.mark.parametrize(
    "line", ["all done", "done", "Finished", "DONE!", "finished in 3.2 s", "10:01:02 INFO Success."]
)
def test_a_last_line_that_says_done_is_a_good_end(line: str) -> None:
    assert "ends with its work done" in ends(f"step 1\n{line}\n", category="unknown", evidence=())
    assert "just stops" in ends(f"{line}\nstep 1\n", category="unknown", evidence=())
    assert ends(f"reading\n{line}\nSegmentation fault\n", evidence=(replace(CRASH, line=3),)) == ""


@pytest.mark.parametrize(
    "line", ["done reading shard 3", "not done", "Done with epoch 2", "finished: false", "epilogue: job 70021 done"]
)
def test_a_last_line_that_says_done_of_a_part_is_no_end(line: str) -> None:
    assert "just stops" in ends(f"step 1\n{line}\n", category="unknown", evidence=())


@pytest.mark.parametrize(("between", "told"), [(38, True), (40, False)])
def test_what_was_done_long_before_is_not_looked_for(between: int, told: bool) -> None:
    crash = Evidence(between + 2, "Segmentation fault", CauseRole.ROOT, "r")
    assert bool(ends("Training complete\n" + "bye\n" * between + "Segmentation fault\n", evidence=(crash,))) is told


@pytest.mark.parametrize(("after", "done"), [(4, True), (5, False)])
def test_a_log_that_ends_with_its_work_done_says_so_among_its_last_lines(after: int, done: bool) -> None:
    told = ends("Training complete\n" + "bye\n" * after, evidence=())
    assert ("its work done" in told) is done
    assert ("just stops" in told) is not done


def test_the_time_of_the_last_line_that_bears_one_is_told() -> None:
    log = "2026-01-02 03:04:05 step 1\n2026-01-02 13:14:15 step 2\nno time\n\n"
    assert ends(log, evidence=()).startswith("the log just stops at 13:14:15, with 'no time'")


# -- how far it came


@pytest.mark.parametrize(
    ("reached_", "lost"),
    [
        (Reached(), None),
        (Reached(step=10), None),
        (Reached(10, 1), None),
        (Reached(10, 1, whole=True), 1.0),
        (Reached(10, 1, None, "x.pt", whole=True), None),
        (Reached(10, 1, 10), 0.0),
        (Reached(10, 1, 9), 0.1),
        (Reached(10, 1, 0), 1.0),
        (Reached(10, 6, 1), 1.0),  # saved by an attempt before: all of this one's
        (Reached(10, 1, 20), 0.0),
        (Reached(5, 10, 1), None),
    ],
)
def test_the_share_of_the_steps_that_is_lost(reached_: Reached, lost: float | None) -> None:
    assert reached_.lost_frac == lost


def test_of_several_files_the_furthest_counts_and_those_in_doubt_do_not() -> None:
    def file(text: str, path: str, **more: Any) -> OutputFile:
        return OutputFile(path, text.encode(), **more)

    def of(*files: OutputFile) -> Reached | None:
        return reached(Output(files))

    one = file("step 5\nsaved a/step-4.pt\nstep 7\n", "a")
    two = file("step 3\nsaved b/step-6.pt\nstep 9\n", "b", kind=OutputKind.RANK, rank="1")
    for found in (of(one, two), of(two, one)):
        assert (found.step, found.first_step, found.saved_step, found.checkpoint) == (9, 3, 6, "b/step-6.pt")
    doubted = file("step 99\n", "c", doubt="another's")
    assert of(one, doubted) == of(one)
    assert of(doubted) is None


# -- times of lines


@pytest.mark.parametrize(
    ("line", "form", "seconds"),
    [
        (b"1970-01-02 00:00:01 x", Form.DATE, DAY_S + 1),
        (b"1970/01/02T00:00:01.5 x", Form.DATE, DAY_S + 1.5),
        (b"01/02/1970 00:01:00 x", Form.DATE, DAY_S + 60),
        (b"01/02/03 01:00:00 INFO x", Form.DATE, 981_162_000.0),  # yy/MM/dd
        (b"Jan  2 00:00:01 n1 kernel: x", Form.DAY_OF_YEAR, 946_771_201.0),
        (b"Feb 29 00:00:00 n1 x", Form.DAY_OF_YEAR, 951_782_400.0),
        (b"Jan  2 00:00:01 1970 x", Form.DATE, DAY_S + 1),
        (b"E0102 00:00:01.25 12 a.cc:3] x", Form.DAY_OF_YEAR, 946_771_201.25),
        (b"E1002 00:00:01.25 12 a.cc:3] x", Form.DAY_OF_YEAR, 970_444_801.25),
        (b"[12:34:56,5] x", Form.TIME_OF_DAY, 45_296.5),
    ],
)
def test_each_form_of_a_time_is_read(line: bytes, form: Form, seconds: float) -> None:
    assert stamp_of(line) == Stamp(form, seconds)


FORMS = {
    "%Y-%m-%d %H:%M:%S": Form.DATE,
    "%Y/%m/%dT%H:%M:%S": Form.DATE,
    "%m/%d/%Y %H:%M:%S": Form.DATE,
    "%y/%m/%d %H:%M:%S": Form.DATE,
    "%b %e %H:%M:%S %Y": Form.DATE,
    "%b %e %H:%M:%S": Form.DAY_OF_YEAR,
    "E%m%d %H:%M:%S": Form.DAY_OF_YEAR,
    "%H:%M:%S": Form.TIME_OF_DAY,
}


@pytest.mark.parametrize("form", FORMS)
def test_any_instant_is_read_back_from_any_form(form: str) -> None:
    day = datetime(2000, 1, 1, tzinfo=UTC)
    for number in range(366):  # each day of a leap year, each at another time of day
        instant = day + timedelta(days=number, seconds=number * 236)
        seconds = instant.timestamp() % DAY_S if FORMS[form] is Form.TIME_OF_DAY else instant.timestamp()
        for before in ("", "[", "rank three of four, on a node with a name that is no number, says: "):
            line = f"{before}{instant:{form}} x".encode()
            assert stamp_of(line) == Stamp(FORMS[form], seconds), line


@pytest.mark.parametrize("line", [b"step 12", b"2026-02-31 00:00:00 x", b"x" * 101 + b"12:34:56", b"12:34", b""])
def test_what_is_no_time_is_none(line: bytes) -> None:
    assert stamp_of(line) is None


def test_times_of_day_bridge_midnight_and_dates_are_left_alone() -> None:
    def day(*seconds: float) -> list[float]:
        return comparable([Stamp(Form.TIME_OF_DAY, each) for each in seconds])

    assert day(10.0, DAY_S / 2 + 10.0) == [10.0, DAY_S / 2 + 10.0]
    assert day(10.0, DAY_S / 2 + 11.0) == [DAY_S + 10.0, DAY_S / 2 + 11.0]
    dated = [Stamp(Form.DATE, 1e9), Stamp(Form.DATE, 2e9)]
    assert comparable(dated) == [1e9, 2e9]
    assert comparable([Stamp(Form.DATE, DAY_S + 5.0), Stamp(Form.TIME_OF_DAY, 9.0)]) == [5.0, 9.0]
    assert comparable([Stamp(Form.DATE, DAY_S + 5.0), Stamp(Form.DAY_OF_YEAR, 9.0)]) == [5.0, 9.0]
    assert comparable([]) == []


# -- what is to be said of reading


def test_what_is_missing_is_said_before_what_is_in_doubt_and_all_of_it_is_bounded() -> None:
    gone = Absent("/o", Why.MISSING, IS_NOT_THERE)
    assert remarks_on(Output((), (gone,))) == ("its log /o is not there",)
    assert remarks_on(Output((), (Absent("/o", Why.MISSING, "no directory"),))) == (
        "its log /o is not there: no directory",
    )
    assert remarks_on(Output((), (Absent("/o", Why.REFUSED, "a link"),))) == ("its log /o cannot be read: a link",)
    assert remarks_on(Output((), (Absent("", Why.MISSING, "nowhere"),))) == ("nowhere",)
    assert remarks_on(Output((), (Absent("/o", Why.UNKNOWN, "nobody knows"),))) == ("nobody knows",)
    doubted = OutputFile("/d", b"x", doubt="is shared")
    assert remarks_on(Output((doubted,), (gone,)))[0] == "its log /o is not there"
    assert "/d is shared" in remarks_on(Output((doubted,)))[0]
    assert remarks_on(Output((OutputFile("/e", b""),))) == ("this attempt wrote nothing to its logs",)
    assert remarks_on(Output((OutputFile("/e", b"x"), OutputFile("/f", b"")))) == ()
    many = remarks_on(Output((), (gone,) * (MOST_REMARKS + 1)))
    assert (len(many), many[-1]) == (MOST_REMARKS + 1, "and 1 more files like these")
    assert len(remarks_on(Output((), (gone,) * MOST_REMARKS))) == MOST_REMARKS


# -- what deliberate bugs were missed here


def test_a_job_that_asked_for_no_gpu_and_found_none_does_so_again() -> None:
    (found,) = circumstances(Cause("gpu-unavailable", "gpu", 0.5), TrainingProgress(), Context(gpus=0))
    assert (found.name, found.shift) == ("no-gpus", -2.5)
    assert circumstances(Cause("gpu-unavailable", "gpu", 0.5), TrainingProgress(), Context(gpus=1)) == ()


@pytest.mark.parametrize(("users", "words"), [(1, "jobs of another user failed"), (2, "jobs of 2 other users failed")])
def test_others_are_counted_in_words(users: int, words: str) -> None:
    (found,) = circumstances(Cause("x", "net", 0.5), TrainingProgress(), Context(others_on_node=users))
    assert words in found.says


def test_a_card_whose_memory_is_all_told_has_no_others() -> None:
    line = "CUDA out of memory. Tried to allocate 1 GiB. GPU 0 has a total capacity of 8 GiB of which 2 GiB is free. "
    memory = gpu_memory(line + "Including non-PyTorch memory, this process has 6 GiB memory in use.")
    assert memory is not None
    assert (memory.own, memory.free, memory.others) == (6 * GIB, 2 * GIB, 0)


@pytest.mark.parametrize("skipped", ["failed to save a/step-3.pt: saved nothing", "Saved all that there is"])
def test_a_line_that_names_no_checkpoint_hides_none_that_comes_after(skipped: str) -> None:
    log = f"step 1\n{skipped}\nstep 2\nSaved checkpoint to a/step-2.pt\nstep 4\n"
    found = reached(Output.of(log.encode()))
    assert found is not None
    assert (found.checkpoint, found.saved_step) == ("a/step-2.pt", 2)


def test_midnight_lies_between_times_that_are_half_a_day_apart() -> None:
    late, early = Stamp(Form.TIME_OF_DAY, DAY_S - 1.0), Stamp(Form.TIME_OF_DAY, DAY_S * 0.45)
    assert comparable([late, early]) == [DAY_S - 1.0, DAY_S * 1.45]
    assert comparable([late, Stamp(Form.TIME_OF_DAY, DAY_S * 0.5)]) == [DAY_S - 1.0, DAY_S * 0.5]


def test_a_short_date_is_read_whole() -> None:
    whole = stamp_of(b"2026-11-23 01:02:03 x")
    assert stamp_of(b"26/11/23 01:02:03 x") == whole
