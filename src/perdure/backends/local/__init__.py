"""The embedded cluster: virtual nodes with emulated GPUs, real processes, real logs."""
