"""What ``perdure keep list``, ``show`` and ``explain`` print."""

from __future__ import annotations

import os
import sys

from perdure.backends.slurm.tools import Tools
from perdure.cli.chain_journal import ChainJournal
from perdure.cli.keep_start import cluster_name
from perdure.cli.output import clock, print_json, print_line, print_table
from perdure.cli.table import age, text, word
from perdure.cli.text import plain
from perdure.errors import StateError
from perdure.succession.chain_state import ChainStanding, JobChain, Link
from perdure.succession.spans import LinkSpan, LinkTimes, all_times, sums_of

LIST = (
    word("CHAIN"),
    word("STATE"),
    word("LINKS"),
    word("JOB"),
    word("INTERRUPTED"),
    word("OVERLAP", leave=1),
    text("WHY"),
)
SHOW = (
    word("LINK"), word("JOB"), word("STATE"), word("SUBMITTED", leave=2), word("WAITED"), word("RAN"), word("GAP"),
    word("OVERLAP"), text("END"),
)  # fmt: skip


def spans_of(chain: JobChain) -> list[LinkSpan]:
    """When each link was submitted and ran, as its marks and the resource manager tell."""
    return [
        LinkSpan(
            link.number,
            link.submitted_s,
            link.started_s,
            link.ended_s,
            link.marks.begun.ran_s if link.marks.begun is not None else 0.0,
        )
        for link in chain.links
    ]


def times_of(chain: JobChain, link: Link) -> LinkTimes:
    """How one link followed the one before it."""
    return all_times(spans_of(chain))[chain.links.index(link)]


def list_chains(as_json: bool, *, wide: bool) -> int:
    chains, unreadable = [], []
    for kept in _journal().chains():
        try:
            chains.append(kept.read())
        except StateError as err:
            unreadable.append(str(err))
    for told in unreadable:  # the others are listed
        sys.stderr.write(f"perdure: {plain(told)}\n")
    if as_json:
        print_json("keep.list", 1, chains=[_record(chain) for chain in chains])
        return 0
    if not chains and not unreadable:
        print_line("No chain is kept. Begin one: perdure keep SCRIPT")
        return 0
    print_table(LIST, (_row(chain) for chain in chains), wide=wide)
    return 0


def show_chain(id_: str, as_json: bool, *, wide: bool) -> int:
    chain = _journal().find(id_).read()
    code = 1 if chain.standing is ChainStanding.STOPPED else 0
    if as_json:
        print_json("keep.show", 1, **_record(chain), all_links=[_link_record(chain, link) for link in chain.links])
        return code
    told = chain.why or chain.last or chain.plan_says
    print_line(f"chain {chain.spec.id}: {chain.standing}{': ' if told else ''}{told}")
    print_table(SHOW, (_link_row(chain, link) for link in chain.links), wide=wide)
    return code


def explain_chain(id_: str, as_json: bool) -> int:
    chain = _journal().find(id_).read()
    if as_json:
        notes = [{"at_s": note.at_s, "text": note.text} for note in chain.notes]
        print_json("keep.explain", 1, chain=chain.spec.id, notes=notes)
        return 0
    for note in chain.notes:
        print_line(f"{clock(note.at_s).short} {note.text}")
    return 0


def _journal() -> ChainJournal:
    return ChainJournal.of(os.environ, cluster_name(Tools()))


def _row(chain: JobChain) -> tuple[object, ...]:
    sums = sums_of(all_times(spans_of(chain)))
    job = chain.links[-1].job_id if chain.links else ""
    return (
        chain.spec.id,
        str(chain.standing),
        len(chain.links),
        job,
        age(sums.gap_s),
        age(sums.overlap_s),
        chain.why or chain.last,
    )


def _record(chain: JobChain) -> dict[str, object]:
    sums = sums_of(all_times(spans_of(chain)))
    return {
        "id": chain.spec.id, "name": chain.spec.name, "script": chain.spec.script, "state": str(chain.standing),
        "why": chain.why or chain.last, "links": len(chain.links),
        "job": chain.links[-1].job_id if chain.links else "", "interrupted_s": sums.gap_s, "overlap_s": sums.overlap_s,
        "interrupted_reactively_s": sums.reactive_gap_s,
        "strategy": str(chain.spec.strategy), "walltime_s": chain.spec.walltime_s,
    }  # fmt: skip


def _link_row(chain: JobChain, link: Link) -> tuple[object, ...]:
    times = times_of(chain, link)
    spans = [
        age(each) if each is not None else "" for each in (times.waited_s, times.ran_s, times.gap_s, times.overlap_s)
    ]
    return (link.number, link.job_id, str(link.phase), clock(link.submitted_s or None), *spans, link.why)


def _link_record(chain: JobChain, link: Link) -> dict[str, object]:
    times = times_of(chain, link)
    return {
        "number": link.number,
        "job": link.job_id,
        "state": str(link.phase),
        "ending": str(link.ending),
        "why": link.why,
        "submitted_s": link.submitted_s or None,
        "started_s": link.started_s or None,
        "ends_s": link.ends_s or None,
        "ended_s": link.ended_s or None,
        "waited_s": times.waited_s,
        "ran_s": times.ran_s,
        "gap_s": times.gap_s,
        "overlap_s": times.overlap_s,
        "progress": link.progress,
    }
