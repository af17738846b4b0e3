"""GPUs that are not there: programs run as if on them, in real or in virtual time, with faults on demand.

`profiles` says what a step takes and needs, `clocks` how time passes, `gpu` is one device, `framework` lets a PyTorch
program meet it, `program` starts one.
"""
