"""Published results about data loading and sharing, reproduced on emulated GPUs in virtual time: one file each.

``registry.STUDIES`` has them by name. Each is a function of profiles and randomness; what it assumes is in its module.
"""
