"""A learning rate beyond what the loss surface allows: the weights swing ever further, until nothing is a number."""

import math
import random

from mini import hello, pause, say

LEARNING_RATE = 40.0

hello(f"diffusion, lr {LEARNING_RATE}")
rng = random.Random(11)
xs = [rng.uniform(-2, 2) for _ in range(64)]
ys = [1.5 * x + 0.3 for x in xs]
weight = bias = 0.0
for step in range(1, 1001):
    errors = [weight * x + bias - y for x, y in zip(xs, ys)]
    loss = sum(e * e for e in errors) / len(errors)
    if step % 20 == 0 or math.isnan(loss):
        say(f"step {step} loss {loss:.4g}")
        pause(0.3)
    if math.isnan(loss):
        raise FloatingPointError(f"loss is nan at step {step}, training stopped")
    weight -= LEARNING_RATE * sum(2 * e * x for e, x in zip(errors, xs)) / len(xs)
    bias -= LEARNING_RATE * sum(2 * e for e in errors) / len(xs)
say(f"finished: loss {loss:.4g}")
