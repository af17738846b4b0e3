"""Drives a user's chains on a live Slurm: looks, decides, writes down, acts.

A disk that is full stops no chain: its state is kept in memory until it can be written. Before anything is done about a
state that is not written, the disk says that it is behind (`KeptChain.fall_behind`), so that whoever drives the chain
next first asks Slurm which of its jobs there are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from perdure.backends.slurm.links import LimitReached, cancel, ended_job, release, submit
from perdure.backends.slurm.tools import Tools
from perdure.cli.chain_journal import ChainJournal, KeptChain
from perdure.cli.link_order import order_of
from perdure.cli.lookout import LOOK_S, Lookout
from perdure.errors import ClusterBusy, ClusterError, ConfigError, PerdureError, StateError
from perdure.succession import messages
from perdure.succession.chain import WAIT, step
from perdure.succession.chain_state import ChainStanding, JobChain, Link
from perdure.succession.protocol import Decision, Forecast

ROUND_S = 1.0  # between two looks at the marks of links
AGAIN_S = 10.0  # until an effect that did nothing is tried again
MOST_EFFECTS = 20  # of one chain in one round
MOST_UNSURE_S = 2 * LOOK_S  # that ``--once`` waits for a look

Tell = Callable[[str, str], None]
"""Of a chain, by its id, in a sentence."""
Decide = Callable[[JobChain, Link, float], tuple[Decision, Forecast | None]]
LinkJudge = Callable[[JobChain, Link], tuple[bool, str]]


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
    _tried: dict[tuple[str, messages.Effect], float] = field(default_factory=dict)
    _failed: dict[str, int | None] = field(default_factory=dict)  # chains whose directory could not be used, and why
    _unwritten: dict[str, JobChain] = field(default_factory=dict)  # newer than what the disk has
    _unsure_s: dict[str, float] = field(default_factory=dict)  # chains of which only a look from then on shows all jobs

    def keep(self, ids: Sequence[str] | None, *, once: bool = False) -> None:
        """Drive these chains, or all, until they are over; with `once` until none waits for a forecast or a look."""
        with ExitStack() as stack:
            mine: dict[str, KeptChain] = {}
            while True:
                for kept in self.journal.chains():
                    wanted = (ids is None or kept.id in ids) and kept.id not in mine
                    if wanted and not self._is_over(kept) and (held := self._taken(kept)) is not None:
                        mine[kept.id] = kept
                        stack.push(held)
                for kept in list(mine.values()):
                    if not self._round(kept):
                        del mine[kept.id]
                        self._unsure_s.pop(kept.id, None)
                if not mine or (once and not self._is_awaiting(time.time())):
                    return
                time.sleep(ROUND_S)

    def _is_awaiting(self, now: float) -> bool:
        """Whether a forecast or a look is to come that nobody would come back for."""
        return self.pending(now) or any(now - since_s < MOST_UNSURE_S for since_s in self._unsure_s.values())

    def _round(self, kept: KeptChain) -> bool:
        """Drive one chain as far as it goes now; False once it is over, or cannot be driven. The others go on."""
        try:
            return self._driven(kept, self._newest(kept))
        except StateError as err:
            self.tell(kept.id, str(err))
            return False
        except OSError as err:  # one that is read-only for a while
            self._say_unusable(kept, err, "its directory cannot be used ({}): this is tried again")
            return True

    def _taken(self, kept: KeptChain) -> ExitStack | None:
        """Hold a chain; None where another process does, of which no file stays open here."""
        with ExitStack() as trial:
            try:
                if not trial.enter_context(kept.held()):
                    return None
                if kept.is_behind():
                    self._unsure_s[kept.id] = time.time()
                return trial.pop_all()
            except OSError as err:
                self._say_unusable(kept, err, "its directory cannot be used ({}): this is tried again")
        return None

    def _is_over(self, kept: KeptChain) -> bool:
        """Whether nothing is left to be done for a chain; one that cannot be read is said once, and kept by nobody."""
        try:
            chain = kept.read()
        except StateError as err:
            if kept.id not in self._failed:
                self.tell(kept.id, f"nobody keeps it: {err}")
            self._failed.setdefault(kept.id, None)
            return True
        return chain.standing is not ChainStanding.RUNNING and not chain.live

    def _say_unusable(self, kept: KeptChain, err: OSError, what: str) -> None:
        if self._failed.get(kept.id) != err.errno:
            self.tell(kept.id, what.format(err.strerror))
        self._failed[kept.id] = err.errno

    # ------------------------------------------------------------ what is written down

    def _newest(self, kept: KeptChain) -> JobChain:
        """The chain as it stands; what could not be written is tried again."""
        unwritten = self._unwritten.get(kept.id)
        if unwritten is None:
            return kept.read()
        self._write(kept, unwritten)
        return unwritten

    def _write(self, kept: KeptChain, chain: JobChain) -> None:
        """Write a chain down, else keep it in memory. Raises `OSError` where the disk cannot say that it is behind."""
        try:
            kept.write(chain, is_current=kept.id not in self._unsure_s)
        except OSError as err:
            kept.fall_behind()
            self._unwritten[kept.id] = chain
            told = "its state cannot be written ({}): it goes on by what Slurm shows, until there is room"
            self._say_unusable(kept, err, told)
            return
        self._failed.pop(kept.id, None)
        if self._unwritten.pop(kept.id, None) is not None:
            self.tell(kept.id, "its state is written again")

    # ------------------------------------------------------------ a round

    def _driven(self, kept: KeptChain, chain: JobChain) -> bool:
        asked = kept.stop_asked()
        if asked and chain.standing is ChainStanding.RUNNING and (asked == "now" or not chain.last):
            chain = self._step(kept, chain, messages.StopAsked(time.time(), at_once=asked == "now"))
        chain = self._step(kept, chain, self._seen(kept, chain))
        if kept.id not in self._unwritten:
            self._failed.pop(kept.id, None)
        return chain.standing is ChainStanding.RUNNING or bool(chain.live) or kept.id in self._unwritten

    def _seen(self, kept: KeptChain, chain: JobChain) -> messages.LinksSeen:
        now = time.time()
        look = self.lookout.look(now)
        numbers = [link.number for link in chain.links]
        unknown = [number for number in kept.folder.numbers() if number > max(numbers, default=0)]
        marks = {number: kept.folder.marks(number) for number in {*numbers[-3:], *unknown}}
        with kept.submitting() as lock:
            in_flight = lock is None
        unsure_s = self._unsure_s.get(kept.id, 0.0)
        if unsure_s and in_flight:
            unsure_s = self._unsure_s[kept.id] = now
        elif unsure_s and look.jobs is not None and look.at_s >= unsure_s:
            del self._unsure_s[kept.id]
        done = bool(chain.spec.done_file) and os.path.exists(chain.spec.done_file)
        return messages.LinksSeen(
            now, marks, look.jobs, look.at_s, done_file=done, in_flight=in_flight, unsure_s=unsure_s
        )

    def _step(self, kept: KeptChain, chain: JobChain, event: messages.Event) -> JobChain:
        """One event and all that follows from it; each state is written down before its effects are carried out."""
        events: list[messages.Event] = [event]
        for _ in range(MOST_EFFECTS):
            if not events:
                break
            new, effects = step(chain, events.pop(0))
            if new != chain:
                self._write(kept, new)
                for note in _news(chain, new):
                    self.tell(kept.id, note)
            chain = new
            for effect in effects:
                if (answer := self._carry_out(kept, chain, effect)) is not None:
                    events.append(answer)
        return chain

    def _carry_out(self, kept: KeptChain, chain: JobChain, effect: messages.Effect) -> messages.Event | None:
        is_running = chain.standing is ChainStanding.RUNNING
        if isinstance(effect, messages.CancelLink) and is_running and kept.id in self._unwritten:
            return None  # whoever drives the chain next would take it for its user's
        key, now = (kept.id, effect), time.time()
        if (
            not isinstance(effect, messages.SubmitLink | messages.PlanLink)
            and now - self._tried.get(key, 0.0) < AGAIN_S
        ):
            return None
        self._tried[key] = now
        try:
            return self._done(kept, chain, effect)
        except ClusterBusy:  # it may have been done: the next look tells
            return None

    def _done(self, kept: KeptChain, chain: JobChain, effect: messages.Effect) -> messages.Event | None:
        link = chain.link(effect.number)
        match effect:
            case messages.SubmitLink():
                return self._submit(kept, chain, effect)
            case messages.CancelLink():
                cancel(self.tools, effect.job_id)
            case messages.ReleaseLink():
                release(self.tools, effect.job_id)
                return messages.LinkReleased(time.time(), effect.number)
            case messages.AskEnd():
                since_s = chain.spec.created_s if link is None else link.submitted_s
                ended = ended_job(self.tools, effect.job_id, os.getuid(), since_s)
                return messages.EndTold(time.time(), effect.number, ended)
            case messages.JudgeLink() if link is not None:
                return messages.LinkJudged(time.time(), effect.number, *self.judge(chain, link))
            case messages.PlanLink() if link is not None:
                return messages.LinkPlanned(time.time(), *self.decide(chain, link, time.time()))
        return None

    def _submit(self, kept: KeptChain, chain: JobChain, effect: messages.SubmitLink) -> messages.Event | None:
        link = chain.link(effect.number)
        assert link is not None
        with kept.submitting() as lock:
            if lock is None:
                return None
            try:
                job_id = submit(order_of(kept, chain, link, effect, lock), self.tools)
            except LimitReached as err:
                return messages.LinkRefused(time.time(), link.number, err.what, limit=True)
            except (ClusterError, ConfigError, OSError) as err:
                what = err.what if isinstance(err, PerdureError) else str(err)
                return messages.LinkRefused(time.time(), link.number, what)
        return messages.LinkSubmitted(time.time(), link.number, job_id)


def _news(before: JobChain, after: JobChain) -> list[str]:
    """What is new, but for a planner that waits on for another reason."""
    waits = bool(before.notes) and before.notes[-1].text.startswith(WAIT)
    fresh = [note.text for note in after.notes if note not in before.notes]
    return [text for text in fresh if not (waits and text.startswith(WAIT))]
