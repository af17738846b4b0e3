"""Its launch script still passes an option that has been renamed."""

import argparse

from mini import hello, pause, say

options = argparse.ArgumentParser(prog="distill.py")
options.add_argument("--teacher", default="resnet-8")
options.add_argument("--temperature", type=float, default=2.0)
hello("distillation")
pause(0.3)
args = options.parse_args()
say(f"teacher {args.teacher}, temperature {args.temperature}")
