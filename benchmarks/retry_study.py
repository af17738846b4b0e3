"""How what smart retries save moves with the load, with the share of jobs that fail and with the classifier's rates.

Run: python benchmarks/retry_study.py [N_JOBS] [SEEDS]. Prints Markdown; minutes at the defaults.
"""

from __future__ import annotations

import sys
import time

from perdure.studies.estimate import Estimate
from perdure.studies.retry import NEVER, PREDICTED, PUBLISHED, RetryStudy, retry

N_JOBS, SEEDS = 50_000, 10
LOADS = (0.5, 0.9, 1.3)
FAILING_AS_SUCCESS = 0.27  # of four jobs three pass under full retry, as Sibylla's do
POOR_CLASSIFIER = (0.8, 0.3)
COLUMNS = (
    "setting", "load", "policy", "retry", "JCT, h", "wait, h", "saved (95 %)", "by running", "by waiting", "of passed",
    "over oracle", "passed", "lost",
)  # fmt: skip


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:]]
    n_jobs, seeds = (*numbers, *(N_JOBS, SEEDS)[len(numbers) :])
    began = time.process_time()
    print(f"Made by `python benchmarks/retry_study.py {n_jobs} {seeds}`: {n_jobs} drawn jobs, {seeds} seeds, 200x8.\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    whole = retry(n_jobs, LOADS, seeds)
    show("as in Philly", whole)
    show("service forgotten", retry(n_jobs, seeds=seeds, policies=("las-2d", "gittins-2d"), forgets_service=True))
    often = retry(n_jobs, seeds=seeds, failing=FAILING_AS_SUCCESS)
    show(f"{FAILING_AS_SUCCESS:.0%} fail", often)
    show("poor classifier", retry(n_jobs, seeds=seeds, classifier=POOR_CLASSIFIER, policies=("sjf",)))
    tell_of("As in Philly", whole)
    tell_of(f"Where {FAILING_AS_SUCCESS:.0%} fail", often)
    saved = ", ".join(f"{policy} {share:.1%}" for policy, share in PUBLISHED["jct_saved"].items())
    passed = f"{PUBLISHED['success_rate_full']:.2%} passed, {PUBLISHED['success_rate_lost']:.2%} lost"
    print(f"\nPublished, predicted against full retry: {saved}.")
    print(f"Within {PUBLISHED['jct_over_oracle']:.1%} of the oracle; {passed}.")
    print(f"\nIn {time.process_time() - began:.0f} s of one core.")


def show(setting: str, study: RetryStudy) -> None:
    for each in study.figures:
        if each.retry not in (PREDICTED, NEVER):
            continue
        cells = (
            setting, f"{each.load:g}", each.policy, each.retry, f"{each.jct_s.mean / 3600:.2f}",
            f"{each.wait_s.mean / 3600:.2f}", span(each.jct_saved), f"{each.saved_running.mean:z.1%}",
            f"{each.saved_waiting.mean:z.1%}", f"{each.jct_saved_passed.mean:z.1%}",
            f"{each.jct_over_oracle.mean:z.2%}", f"{each.success_rate.mean:.2%}", f"{each.success_lost.mean:.2%}",
        )  # fmt: skip
        print(f"| {' | '.join(cells)} |")


def tell_of(setting: str, study: RetryStudy) -> None:
    """Failures and classifier of a study in a sentence."""
    mix = ", ".join(f"{name.replace('_', ' ')} {share:.1%}" for name, share in study.gpu_time.items() if share)
    tpr, fpr = study.classifier
    print(
        f"\n{setting}, {study.failing:.1%} of the jobs fail at least once. GPU time of all tries: {mix}; of their "
        f"running time {study.repeated:.1%} are retries of jobs that fail for good. Classifier {tpr:.3g}/{fpr:.3g}."
    )


def span(share: Estimate) -> str:
    return f"{share.mean:.1%} ({share.low:.1%}-{share.high:.1%})"


if __name__ == "__main__":
    main()
