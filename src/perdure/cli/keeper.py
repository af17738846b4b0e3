"""Drives a user's chains on a live Slurm: looks, decides, writes down, acts. One ``squeue`` a minute for all."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import msgspec

from perdure.backends.slurm.links import (
    LimitReached,
    SubmitOrder,
    cancel,
    ended_job,
    look_at_links,
    release,
    submit,
)
from perdure.backends.slurm.submission import SbatchOption, for_later_links, link_script, words_of
from perdure.backends.slurm.tools import Tools
from perdure.cli.chain_journal import ChainJournal, KeptChain, LinkPlan
from perdure.cli.kept import KeptFolder
from perdure.errors import ClusterBusy, ClusterError, ConfigError, PerdureError, StateError
from perdure.model.chain_link import LEVELS, ChainLink
from perdure.model.link_job import LinkJob
from perdure.succession.chain import WAIT, step
from perdure.succession.chain_state import ChainStanding, JobChain, Link
from perdure.succession.messages import (
    AskEnd,
    CancelLink,
    Effect,
    EndTold,
    Event,
    JudgeLink,
    LinkJudged,
    LinkPlanned,
    LinkRefused,
    LinkReleased,
    LinksSeen,
    LinkSubmitted,
    PlanLink,
    ReleaseLink,
    StopAsked,
    SubmitLink,
)
from perdure.succession.protocol import Decision, Forecast

LOOK_S = 60.0  # between two looks at Slurm, however many chains and processes
ROUND_S = 1.0  # between two looks at the marks of links
AGAIN_S = 10.0  # until an effect that did nothing is tried again
MOST_EFFECTS = 20  # of one chain in one round
_LOOK = "look.json"

Tell = Callable[[str, str], None]
"""Of a chain, by its id, in a sentence."""
Decide = Callable[[JobChain, Link, float], tuple[Decision, Forecast | None]]
LinkJudge = Callable[[JobChain, Link], tuple[bool, str]]


@dataclass(frozen=True, slots=True)
class Look:
    """What Slurm said of all jobs of this user, and when it was asked."""

    jobs: tuple[LinkJob, ...] | None = None
    at_s: float = 0.0


class Lookout:
    """Asks Slurm at most once a minute, together with every other process of this user."""

    def __init__(self, tools: Tools, user: str) -> None:
        self._tools, self._user = tools, user
        conf = hashlib.sha256(os.environ.get("SLURM_CONF", "").encode()).hexdigest()[:16]
        self._kept = KeptFolder.below("keep", conf)
        self._look, self._tried_s = Look(), 0.0

    def look(self, now: float) -> Look:
        """The newest look; the one before, where Slurm does not answer."""
        if now - self._look.at_s < LOOK_S or now - self._tried_s < LOOK_S:
            return self._look
        kept = self._kept.read(_LOOK)
        if kept is not None and kept[1] < LOOK_S and (found := _decoded(kept[0])) and found.at_s > self._look.at_s:
            self._look = found
            return found
        with self._kept.alone(_LOOK) as alone:
            if not alone:  # another process asks just now
                return self._look
            self._tried_s = now
            try:
                self._look = Look(look_at_links(self._tools, self._user), now)
            except (ClusterBusy, ClusterError):
                return self._look
            self._kept.write(_LOOK, msgspec.json.encode((self._look.jobs, now)))
        return self._look


def _decoded(data: bytes) -> Look | None:
    try:
        return Look(*msgspec.json.decode(data, type=tuple[tuple[LinkJob, ...], float]))
    except msgspec.MsgspecError:  # another version kept it
        return None


@dataclass(slots=True)
class Keeper:
    """Drives the chains that it holds."""

    journal: ChainJournal
    lookout: Lookout
    tools: Tools
    decide: Decide
    judge: LinkJudge
    tell: Tell
    pending: Callable[[float], bool]  # whether a decision waits for what is being found out
    _tried: dict[tuple[str, Effect], float] = field(default_factory=dict)
    _failed: dict[str, int | None] = field(default_factory=dict)  # chains whose directory could not be used, and why

    def keep(self, ids: Sequence[str] | None, *, once: bool = False) -> None:
        """Drive these chains, or all, until they are over; with `once` until none waits for a forecast."""
        with ExitStack() as stack:
            mine: dict[str, KeptChain] = {}
            while True:
                for kept in self.journal.chains():
                    wanted = (ids is None or kept.id in ids) and kept.id not in mine
                    if wanted and not _is_over(kept) and (held := self._taken(kept)) is not None:
                        mine[kept.id] = kept
                        stack.push(held)
                for kept in list(mine.values()):
                    if not self._round(kept):
                        del mine[kept.id]
                if not mine or (once and not self.pending(time.time())):
                    return
                time.sleep(ROUND_S)

    def _round(self, kept: KeptChain) -> bool:
        """Drive one chain as far as it goes now; False once it is over, or cannot be driven. The others go on."""
        try:
            return self._driven(kept, kept.read())
        except StateError as err:
            self.tell(kept.id, str(err))
            return False
        except OSError as err:  # a full disk, or one that is read-only for a while
            self._say_unusable(kept, err)
            return True

    def _taken(self, kept: KeptChain) -> ExitStack | None:
        """Hold a chain; None where another process does, of which no file stays open here."""
        with ExitStack() as trial:
            try:
                return trial.pop_all() if trial.enter_context(kept.held()) else None
            except OSError as err:
                self._say_unusable(kept, err)
        return None

    def _say_unusable(self, kept: KeptChain, err: OSError) -> None:
        if self._failed.get(kept.id) != err.errno:
            self.tell(kept.id, f"its directory cannot be used ({err.strerror}): this is tried again")
        self._failed[kept.id] = err.errno

    def _driven(self, kept: KeptChain, chain: JobChain) -> bool:
        asked = kept.stop_asked()
        if asked and chain.standing is ChainStanding.RUNNING and (asked == "now" or not chain.last):
            chain = self._step(kept, chain, StopAsked(time.time(), at_once=asked == "now"))
        chain = self._step(kept, chain, self._seen(kept, chain))
        self._failed.pop(kept.id, None)
        return chain.standing is ChainStanding.RUNNING or bool(chain.live)

    def _seen(self, kept: KeptChain, chain: JobChain) -> LinksSeen:
        now = time.time()
        look = self.lookout.look(now)
        marks = {number: kept.folder.marks(number) for number in {*(link.number for link in chain.links[-3:])}}
        with kept.submitting() as lock:
            in_flight = lock is None
        done = bool(chain.spec.done_file) and os.path.exists(chain.spec.done_file)
        return LinksSeen(now, marks, look.jobs, look.at_s, done_file=done, in_flight=in_flight)

    def _step(self, kept: KeptChain, chain: JobChain, event: Event) -> JobChain:
        """One event and all that follows from it; each state is written down before its effects are carried out."""
        events: list[Event] = [event]
        for _ in range(MOST_EFFECTS):
            if not events:
                break
            new, effects = step(chain, events.pop(0))
            if new != chain:
                kept.write(new)
                for note in _news(chain, new):
                    self.tell(kept.id, note)
            chain = new
            for effect in effects:
                if (answer := self._carry_out(kept, chain, effect)) is not None:
                    events.append(answer)
        return chain

    def _carry_out(self, kept: KeptChain, chain: JobChain, effect: Effect) -> Event | None:
        key, now = (kept.id, effect), time.time()
        if not isinstance(effect, SubmitLink | PlanLink) and now - self._tried.get(key, 0.0) < AGAIN_S:
            return None
        self._tried[key] = now
        try:
            return self._done(kept, chain, effect)
        except ClusterBusy:  # it may have been done: the next look tells
            return None

    def _done(self, kept: KeptChain, chain: JobChain, effect: Effect) -> Event | None:
        match effect:
            case SubmitLink():
                return self._submit(kept, chain, effect)
            case CancelLink():
                cancel(self.tools, effect.job_id)
            case ReleaseLink():
                release(self.tools, effect.job_id)
                return LinkReleased(time.time(), effect.number)
            case AskEnd():
                link = chain.link(effect.number)
                since_s = chain.spec.created_s if link is None else link.submitted_s
                return EndTold(time.time(), effect.number, ended_job(self.tools, effect.job_id, since_s))
            case JudgeLink():
                link = chain.link(effect.number)
                if link is not None:
                    return LinkJudged(time.time(), effect.number, *self.judge(chain, link))
            case PlanLink():
                current = chain.link(effect.number)
                if current is not None:
                    return LinkPlanned(time.time(), *self.decide(chain, current, time.time()))
        return None

    def _submit(self, kept: KeptChain, chain: JobChain, effect: SubmitLink) -> Event | None:
        link = chain.link(effect.number)
        assert link is not None
        with kept.submitting() as lock:
            if lock is None:
                return None
            try:
                job_id = submit(order_of(kept, chain, link, effect, lock), self.tools)
            except LimitReached as err:
                return LinkRefused(time.time(), link.number, err.what, limit=True)
            except (ClusterError, ConfigError, OSError) as err:
                what = err.what if isinstance(err, PerdureError) else str(err)
                return LinkRefused(time.time(), link.number, what)
        return LinkSubmitted(time.time(), link.number, job_id)


def order_of(kept: KeptChain, chain: JobChain, link: Link, effect: SubmitLink, lock: int) -> SubmitOrder:
    """The call of ``sbatch`` for one submission of a link."""
    plan = kept.plan()
    options = [SbatchOption(name, value, words) for name, value, words in plan.options]
    own, given = options[: plan.script_options], options[plan.script_options :]
    if link.number > 1:
        own, given = for_later_links(own), for_later_links(given)
    return SubmitOrder(
        script=link_script(own, link_command(kept, chain, plan, link)),
        options=[*words_of(given), *link_options(chain, plan, link, effect)],
        directory=chain.spec.directory,
        environment=kept.environment(),
        answer=kept.folder.links / f"{link.key}.sbatch",
        lock=lock,
    )


def link_options(chain: JobChain, plan: LinkPlan, link: Link, effect: SubmitLink) -> list[str]:
    """Options of ``sbatch`` that are ours."""
    said_s = tuple(map(link.said.at, LEVELS)) if link.said is not None else ()
    why = chain.plan_says if link.number > 1 and chain.current is not None else ""
    comment = f"{plan.comment} {ChainLink(chain.spec.tag, link.number, link.tries, said_s, why).in_words()}".strip()
    found = [f"--job-name={chain.spec.name}", f"--comment={comment}"]
    if effect.after_job:
        found.append(f"--dependency=afterany:{effect.after_job}")
    if effect.begin_s:
        found.append(f"--begin=now+{max(0, round(effect.begin_s - time.time()))}")
    if effect.hold:
        found.append("--hold")
    return found


def link_command(kept: KeptChain, chain: JobChain, plan: LinkPlan, link: Link) -> list[str]:
    """What the job of a link runs."""
    words = [sys.executable, "-P", "-m", "perdure.job.link", "--folder", str(kept.path), "--link", str(link.number)]
    words += ["--grace", f"{plan.grace_s:g}", "--framework", plan.framework]
    if plan.signal:
        words += ["--signal", plan.signal, *(["--steps"] if plan.to_steps else [])]
    if chain.spec.progress_file:
        words += ["--progress", chain.spec.progress_file]
    return [*words, "--", *plan.command]


def _news(before: JobChain, after: JobChain) -> list[str]:
    """What is new, but for a planner that waits on for another reason."""
    waits = bool(before.notes) and before.notes[-1].text.startswith(WAIT)
    fresh = [note.text for note in after.notes if note not in before.notes]
    return [text for text in fresh if not (waits and text.startswith(WAIT))]


def _is_over(kept: KeptChain) -> bool:
    try:
        chain = kept.read()
    except PerdureError:
        return True
    return chain.standing is not ChainStanding.RUNNING and not chain.live
