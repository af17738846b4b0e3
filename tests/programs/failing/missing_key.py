"""The settings lack a key that rank 0 alone reads, to write its report."""
#: cause = ["index"]
#: anywhere = true
#: rank = "0"
#: verdict = "stop"
#: message = "KeyError: 'report_every'"

from training import rank, train

settings = {"lr": 0.1}


def at_step(step):
    if rank == 0 and step == 6:
        step % settings["report_every"]


train(at_step)
