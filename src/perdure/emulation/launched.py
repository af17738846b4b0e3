"""``torchrun`` of a program with emulated GPUs, with torchrun's own options."""

from __future__ import annotations

import sys

from torch.distributed.run import parse_args, run


def main() -> None:
    """Read torchrun's own options, and let it start `program` with the user's program."""
    args = parse_args(sys.argv[1:])
    program = ["-m", args.training_script] if args.module else [args.training_script]
    args.training_script_args = [*program, *args.training_script_args]
    args.training_script, args.module, args.no_python = "perdure.emulation.program", True, False
    run(args)


if __name__ == "__main__":
    main()
