"""The decoder was widened and its skip connection was not: the arrays do not fit."""

import numpy as np
from mini import hello, pause, say


class Linear:
    def __init__(self, rng, inputs, outputs):
        self.weight = rng.normal(0, inputs**-0.5, (inputs, outputs))

    def __call__(self, x):
        return np.maximum(x @ self.weight, 0)


class Net:
    def __init__(self, rng):
        self.encoder = Linear(rng, 64, 32)
        self.middle = Linear(rng, 32, 48)
        self.decoder = Linear(rng, 64, 64)  # takes 32 of the skip and 32 of the middle, which has 48 now

    def __call__(self, x):
        skip = self.encoder(x)
        return self.decoder(np.concatenate([skip, self.middle(skip)], axis=1))


hello("u-net, width 48")
rng = np.random.default_rng(3)
net = Net(rng)
say(f"model built, {sum(layer.weight.size for layer in vars(net).values())} parameters")
pause(0.5)
batch = rng.normal(size=(16, 64))
say(f"epoch 1, batch of shape {batch.shape}")
say(f"loss {np.square(net(batch) - batch).mean():.4f}")
