"""An option that the program needs is not given; each rank ends itself with exit code 2."""
#: cause = ["config"]
#: rank = "any"
#: verdict = "stop"
#: message = "the following arguments are required: --data"

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.parse_args()
