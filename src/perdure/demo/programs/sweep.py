"""A small sweep over learning rates that simply works."""

from mini import hello, pause, say

hello("sweep over 6 learning rates")
best = (float("inf"), 0.0)
for rate in (0.01, 0.03, 0.1, 0.3, 0.6, 0.9):
    weight = 0.0
    for _ in range(30):
        weight -= rate * (weight - 3.0)
    loss = (weight - 3.0) ** 2
    best = min(best, (loss, rate))
    pause(1.5)
    say(f"rate {rate}: loss {loss:.2e}")
say(f"finished: best rate {best[1]}")
