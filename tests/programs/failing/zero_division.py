"""Rank 0 alone divides by zero, where only rank 0 reports."""
#: cause = ["numeric"]
#: rank = "0"
#: verdict = "stop"
#: message = "ZeroDivisionError: "
#: frame = "zero_division.py\", line 15, in report"

from training import rank, train

seen = []


def report(step):
    if rank == 0 and step == 6:
        print(f"{sum(seen) / len(seen):.1f} examples a second")


train(report)
