"""How what smart retries save moves with the load, with the share of jobs that fail and with the classifier's rates.

Run: python benchmarks/retry_study.py [N_JOBS] [SEEDS]. Prints Markdown; minutes at the defaults.
"""

from __future__ import annotations

import sys
import time

from perdure.simulation.study import NEVER, PREDICTED, PUBLISHED_RETRY, Estimate, RetryStudy, retry
from perdure.traces.failure_table import SHARE_FAILING

N_JOBS, SEEDS = 50_000, 2
LOADS = (0.5, 0.9, 1.3)
POOR_CLASSIFIER = (0.8, 0.3)
COLUMNS = (
    "load", "failing", "classifier", "policy", "retry", "wait, h", "JCT, h", "saved (95 %)", "over oracle", "passed",
    "lost",
)  # fmt: skip


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:]]
    n_jobs, seeds = (*numbers, *(N_JOBS, SEEDS)[len(numbers) :])
    began = time.perf_counter()
    print(f"Made by `python benchmarks/retry_study.py {n_jobs} {seeds}`: {n_jobs} drawn jobs, {seeds} seeds, 200x8.\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    show(retry(n_jobs, LOADS, seeds))
    show(retry(n_jobs, seeds=seeds, failing=SHARE_FAILING, policies=("sjf",)))
    show(retry(n_jobs, seeds=seeds, classifier=POOR_CLASSIFIER, policies=("sjf",)))
    told = PUBLISHED_RETRY
    saved = ", ".join(f"{policy} {share:.1%}" for policy, share in told["jct_saved"].items())
    passed = f"{told['success_rate_full']:.2%} passed, {told['success_rate_lost']:.2%} lost"
    print(f"\nPublished, predicted against full retry: {saved}.")
    print(f"Within {told['jct_over_oracle']:.1%} of the oracle; {passed}.")
    print(f"\nIn {time.perf_counter() - began:.0f} s.")


def show(study: RetryStudy) -> None:
    rates = "/".join(f"{rate:.3g}" for rate in study.classifier)
    for each in study.figures:
        saved, over = span(each.jct_saved), f"{each.jct_over_oracle.mean:z.2%}"
        if each.retry in (PREDICTED, NEVER):
            print(f"| {each.load:g} | {study.failing:.0%} | {rates} | {each.policy} | {each.retry} "
                  f"| {each.wait_s.mean / 3600:.2f} | {each.jct_s.mean / 3600:.2f} | {saved} | {over} "
                  f"| {each.success_rate.mean:.2%} | {each.success_lost.mean:.2%} |")


def span(share: Estimate) -> str:
    return f"{share.mean:.1%} ({share.low:.1%}-{share.high:.1%})"


if __name__ == "__main__":
    main()
