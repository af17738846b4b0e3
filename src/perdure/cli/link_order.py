"""How a link of a chain is submitted: the options of ``sbatch`` that are ours, and what its job runs."""

from __future__ import annotations

import sys
import time

from perdure.backends.slurm.links import SubmitOrder
from perdure.backends.slurm.submission import SbatchOption, for_later_links, link_script, words_of
from perdure.cli.chain_journal import KeptChain, LinkPlan
from perdure.model.job_comment import LEVELS, ChainLink
from perdure.succession.chain_state import JobChain, Link, Strategy
from perdure.succession.messages import SubmitLink


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
        lock=lock,
    )


def link_options(chain: JobChain, plan: LinkPlan, link: Link, effect: SubmitLink) -> list[str]:
    """Options of ``sbatch`` that are ours."""
    said_s = tuple(map(link.said.at, LEVELS)) if link.said is not None else ()
    is_planned = link.number > 1 and chain.current is not None and chain.spec.strategy is Strategy.NONE
    why = chain.plan_says if is_planned else ""
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
    words += ["--chain", chain.spec.tag]
    words += ["--grace", f"{plan.grace_s:g}", "--framework", plan.framework]
    if plan.signal:
        words += ["--signal", plan.signal, *(["--steps"] if plan.to_steps else [])]
    if chain.spec.progress_file:
        words += ["--progress", chain.spec.progress_file]
    return [*words, "--", *plan.command]
