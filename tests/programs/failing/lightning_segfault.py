"""Lightning under torchrun: rank 1 reads address 0 in native code."""
#: cause = ["native_crash"]
#: rank = "1"
#: verdict = "probe"
#: needs = "lightning"

import ctypes

from fitting import Model, fit


class Native(Model):
    def training_step(self, batch, index):
        if self.global_rank == 1 and index == 6:
            ctypes.string_at(0)
        return self.layer(batch).sum()


fit(Native())
