"""A Slurm cluster as the backend sees it, look by look, and the commands that come of actions."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.spool import Question, Taken, _end
from perdure.errors import PerdureError
from perdure.model.actions import Action, Comment, Requeue
from perdure.model.identity import AttemptId
from perdure.model.jobs import JobSize
from perdure.model.observation import Observation
from tests.copying import replace
from tests.recorded.drawn import in_words
from tests.recorded.stories.actions import an_action
from tests.recorded.stories.played_slurm import (
    MARK,
    NODES,
    START_S,
    PlayedReader,
    PlayedSlurm,
    PlayedSpool,
    PlayedTools,
    nodes_of,
)

CASES, PARTS, STEPS = 60, 2, 24
COMMENT = "perdure: failed 2020-09-13 12:26:40: because"
ENDS = (
    ("COMPLETED", "0:0"), ("FAILED", "1:0"), ("NODE_FAIL", "0:0"), ("TIMEOUT", "0:0"), ("OUT_OF_MEMORY", "0:125"),
    ("CANCELLED", "0:15"), ("PREEMPTED", "0:15"),
)  # fmt: skip
DEPENDENCIES = (*("afterok:{}(unfulfilled)",) * 3, "afterok:{}_*", "afterany:{}", "aftercorr:{}", "singleton")
CODES = ("1:0", "0:9", "75:0", "0:15", "137:0", "2:0")


def story(_case: int, rng: Random) -> Iterator[str]:
    slurm, spool = PlayedSlurm(rng), PlayedSpool()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: slurm.now)
        patch.setattr("time.monotonic", lambda: slurm.now)
        patch.setattr("time.sleep", lambda seconds: slurm.__setattr__("now", slurm.now + seconds))
        patch.setattr("secrets.token_hex", lambda many: MARK[:-1] if many == 8 else "~~|~~")
        patch.setattr("perdure.backends.slurm.output_memory.home_of", lambda uid: f"/home/{uid}")
        patch.setattr("perdure.backends.slurm.backend.OwnerReader", lambda: PlayedReader(rng, slurm.told))
        backends = (SlurmBackend("c", PlayedTools(slurm=slurm), spool) for _ in range(PARTS))  # restarted
        return iter([line for backend in backends for _ in range(STEPS) for line in _step(slurm, spool, backend, rng)])


def _step(slurm: PlayedSlurm, spool: PlayedSpool, backend: SlurmBackend, rng: Random) -> Iterator[str]:
    slurm.now += rng.choice((0.0, 0.0, 1.0, 5.0, 30.0, 61.0))
    for _ in range(rng.choice((1, 1, 2, 3))):
        yield f"{slurm.now - START_S:g} {_something(slurm, spool, rng)}"
    try:
        yield f" {_asked(slurm, backend, rng)}"
    except PerdureError as err:
        yield f" {err}"
    yield from (f" told {command}" for command in slurm.told)
    slurm.told.clear()
    if spool.answered:
        yield f" answered {spool.answered}"
        spool.answered.clear()


def _something(slurm: PlayedSlurm, spool: PlayedSpool, rng: Random) -> str:
    waiting, running, over = _by_state(slurm)
    what = rng.choice("nnnssssseeeeeppcfrmtqkxhj")
    if what in "nah" or not slurm.jobs:
        return f"submitted {_submit(slurm, rng)}"
    if what == "s" and waiting:
        number = rng.choice(waiting)
        slurm.start(number)
        return f"started {number}"
    if what in "et" and running:
        number = rng.choice(running)
        state, code = rng.choice((*ENDS, ("FAILED", rng.choice(CODES))))
        slurm.end(number, state, code, completing=rng.random() < 0.3)
        if rng.random() < 0.3:
            _hook(slurm, spool, number, state, rng)
        return f"ended {number} {state} {code}"
    if what == "p" and over + running:
        number = rng.choice(over + running)
        slurm.put_back(number, rng.random() < 0.4, rng.choice(("REQUEUED", "NODE_FAIL", "PREEMPTED")))
        return f"put back {number}"
    if what == "c":
        for number, job in slurm.jobs.items():
            if job["state"] == "COMPLETING":
                slurm.complete(number)
        return "completed"
    return _seldom(slurm, rng, what, over)


def _seldom(slurm: PlayedSlurm, rng: Random, what: str, over: list[int]) -> str:
    match what:
        case "f" if over:
            del slurm.jobs[over[0]]
            return f"forgot {over[0]}"
        case "r":
            slurm.boot_s = int(slurm.now)
            return "restarted"
        case "m":
            state = rng.choice(("IDLE", "IDLE+DRAIN", "DOWN*", "MIXED+DRAIN", "ALLOCATED", "IDLE+NOT_RESPONDING"))
            reason = rng.choice(("", "Not responding", "Xid 79", "[perdure e1]"))
            slurm.nodes[rng.choice(NODES)] = {"state": state, "reason": reason, "since": int(slurm.now)}
            return f"a node {state}"
        case "q":
            slurm.silent = rng.random() < 0.3
            return "silent" if slurm.silent else "heard"
        case "k":
            slurm.denies = not slurm.denies
            return "denies"
        case "x":
            job = slurm.jobs[rng.choice(tuple(slurm.jobs))]
            job["reason"] = rng.choice(("JobHeldAdmin", "BadConstraints", "launch_failed_requeued_held", "Dependency"))
            job["priority"] = rng.choice((0, 7))
            return job["reason"]
    return "nothing"


def _submit(slurm: PlayedSlurm, rng: Random) -> int:
    others = tuple(slurm.jobs)
    match rng.choice((0, 1, 1, 1, 2, 3, 4, 5, 6, 6, 6)):
        case 0:
            first = slurm.next
            for task in range(2):
                slurm.submit(before_name=f"ArrayJobId={first} ArrayTaskId={task} ", user="ada", uid=1000)
            return first
        case 1 if others:
            kind = rng.choice(
                ("afterok:{}(unfulfilled)",) * 3 + ("afterok:{}_*", "afterany:{}", "aftercorr:{}", "singleton")
            )
            return slurm.submit(dependency=kind.format(rng.choice(others)), name="train", user="ada", uid=1000)
        case 2:
            return slurm.submit(required=rng.choice(NODES), excluded=rng.choice(("(null)", "n[3-4]")))
        case 3:
            comment = rng.choice(("perdure:retry=never", "perdure:min-nodes=1", "of mine", "perdure: failed"))
            return slurm.submit(comment=comment, tail=rng.choice(("", " AdminComment=site ")))
        case 4:
            return slurm.submit(cron="CronJob=Yes ")
        case 5:
            first = slurm.next
            for part in range(2):
                slurm.submit(before_name=f"HetJobId={first} HetJobOffset={part} ", user="bob", uid=1001, name="h")
            return first
    return slurm.submit()


def _by_state(slurm: PlayedSlurm) -> tuple[list[int], list[int], list[int]]:
    states = {number: job["state"] for number, job in slurm.jobs.items()}
    waiting = [number for number, state in states.items() if state == "PENDING"]
    running = [number for number, state in states.items() if state == "RUNNING"]
    return waiting, running, [number for number in states if number not in (*waiting, *running)]


def _hook(slurm: PlayedSlurm, spool: PlayedSpool, number: int, state: str, rng: Random) -> None:
    job = slurm.jobs[number]
    said = {
        "JOBID": number, "ARRAYJOBID": 0, "ARRAYTASKID": 4294967294, "UID": job["uid"], "USERNAME": job["user"],
        "JOBSTATE": state, "EXITCODE": job["exit_code"], "SUBMIT": job["submit"], "START": job["start"],
        "END": job["end"], "NODES": job["nodes"],
    }  # fmt: skip
    row = _end("perdure-event 1 end\n" + "".join(f"{key}={value}\n" for key, value in said.items()))
    asked = (Question(str(number), nodes_of(job), f"{number}.answer"),) if rng.random() < 0.5 else ()
    spool.dropped.append(Taken(ends=(row,) if row else (), questions=asked, notices=("a notice",)))


def _asked(slurm: PlayedSlurm, backend: SlurmBackend, rng: Random) -> str:
    match rng.choice("ooooooopppppppplwwqtnseuffff"):
        case "o":
            return _seen(backend.observe(slurm.now - rng.choice((60.0, 900.0))))
        case "p" if slurm.jobs:
            action = _action(slurm, rng)
            with backend.batch():
                return f"{in_words(action)} {in_words(backend.perform(action))}"
        case "l" if slurm.jobs:
            action = _action(slurm, rng)
            return f"{in_words(action)} looked up {in_words(backend.lookup(action))}"
        case "w" if slurm.jobs:
            some = [action for _ in range(9) if isinstance(action := _action(slurm, rng), Comment)]
            return in_words(backend.write_comments(some))
        case "q":
            return in_words(backend.queue())
        case "t":
            backend.listen()
            return f"{sorted(backend.waiting())} {list(backend.notices())}"
        case "f" if backend.records:
            found = [attempt for attempt in backend.observe(slurm.now - 900.0).attempts if attempt.state.is_over]
            return f"{in_words(found[-1:])} {in_words([backend.output(each, 999) for each in found[-1:]])}"
        case "n":
            return f"{in_words(backend.config().codes('RequeueExit'))} {backend.clocks_ahead(float(START_S))}"
        case "s" if slurm.jobs:
            some_jobs = [str(number) for number in list(slurm.jobs)[-2:]]
            size, seen = JobSize(2, 2, rng.choice((1, 2))), JobSize(1, 1, 2)
            nice = backend.set_nice(dict.fromkeys(some_jobs, rng.choice((0, 5))))
            return f"{nice} {backend.set_sizes(dict.fromkeys(some_jobs, (size, seen)))}"
        case "e":
            waits = list(backend.waiting().values())
            said = _seen(backend.look_at(waits))
            for question in waits:
                backend.answer(question.job_id)
            return said
        case "u":
            look = backend.queue()
            return "" if look is None else in_words(backend.past_jobs(look, slurm.now - 9e5))
    return "nothing is asked"


def _seen(look: Observation) -> str:
    return in_words(replace(look, time_s=0.0))


def _action(slurm: PlayedSlurm, rng: Random) -> Action:
    if slurm.past and rng.random() < 0.3:
        return rng.choice(slurm.past[-4:])
    slurm.past.append(_new_action(slurm, rng))
    return slurm.past[-1]


def _new_action(slurm: PlayedSlurm, rng: Random) -> Action:
    waiting, _, over = _by_state(slurm)
    number = rng.choice(rng.choice((over, waiting, [])) or tuple(slurm.jobs))
    job = slurm.jobs[number]
    header = dict(word.split("=") for word in job.get("before_name", "").split())
    job_id = f"{header['ArrayJobId']}_{header['ArrayTaskId']}" if "ArrayTaskId" in header else str(number)
    starts = [row["start"] for row in slurm.rows if row["number"] == number]
    latest = starts[-1] if starts else 0
    if number in over and rng.random() < 0.4:
        return Requeue(
            AttemptId("c", job_id, latest), rng.choice(((), ("n1",))), rng.choice((0.0, 300.0)), comment=COMMENT
        )
    if number in over and rng.random() < 0.4:
        return Comment(AttemptId("c", job_id, latest), COMMENT)
    return an_action(rng, "c", job_id, latest, NODES)
