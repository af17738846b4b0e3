"""HTCondor: the jobs of one ``condor_schedd`` and the machines of its pool, asked and told by its command-line tools.

Tried with 23.9, as Debian 13 packages it.
"""
