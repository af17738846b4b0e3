"""Run the foundry's programs, prove their truth, and write the published records.

    python -m foundry.cast --keep OLD --out foundry.jsonl.gz [--python PYTHON] [--slurm-sandbox TOOL]

What this machine cannot run is skipped with its reason, and its record in OLD is kept where the program is still the
same.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from foundry.compose import composed
from foundry.needs import Machine
from foundry.program import Program, programs
from foundry.records import MEASURED, Record, dump, read
from foundry.run import Output, run
from perdure.errors import InputError

DETERMINISTIC_RUNS = 3
TRIES = 3  # some launchers lose a message now and then


class Unproven(InputError):
    """A program did not do what its entry says."""


class Lacking(InputError):
    """The machine lacks something that a program needs."""


def cast(program: Program, machine: Machine) -> Record:
    """Run `program` until its truth is proven: a transient one passes its second run, others fail three times.

    Every run that fails must show the words of the entry, else it failed for another reason. The record is of the
    first run. Raises `Lacking` where the machine cannot run it, `Unproven` where it does otherwise.
    """
    for need in program.needs:
        if reason := machine.lacks(need):
            raise Lacking(f"program {program.name}", reason, "Run it where that is")
    style = zlib.crc32(program.name.encode())
    first = _telling(program, machine, style, present=True)
    again = 1 if program.transient else DETERMINISTIC_RUNS - 1
    later = [_telling(program, machine, style, present=not program.transient) for _ in range(again)]
    _check(program, [first, *later])
    return _record(program, first, [first, *later])


def _telling(program: Program, machine: Machine, style: int, *, present: bool) -> Output:
    """Run once; a run that fails without the words of the entry proves nothing and is made again, `TRIES` in all."""
    for _ in range(TRIES):
        output = run(program, machine, style, present=present)
        if output.exit_code == 0 or program.shows in output.text:
            break
    return output


def _check(program: Program, runs: Sequence[Output]) -> None:
    codes = [output.exit_code for output in runs]
    proven = codes[0] != 0 and all((code == 0) == program.transient for code in codes[1:])
    silent = [output for output in runs if output.exit_code and program.shows not in output.text]
    if proven and not silent:
        return
    what = f"ended {codes}" if not proven else f"did not show {program.shows!r}"
    told = (silent or runs)[0].text[-2000:]
    raise Unproven(
        f"program {program.name}", f"is {program.truth} by its entry, but {what}", f"Fix it. It said:\n{told}"
    )


def _record(program: Program, output: Output, runs: Sequence[Output]) -> Record:
    first_line, last_line = output.span
    proof = {"exit_codes": [each.exit_code for each in runs], "program": program.digest}
    return Record(
        id=program.name,
        program=program.name,
        family=program.family,
        framework=program.framework,
        source=f"foundry/{program.family}",
        origin=MEASURED,
        label=program.truth.value,
        category=program.category,
        rationale=program.why,
        shows=program.shows,
        pair=program.pair,
        seed=0,
        exit_code=output.exit_code,
        first_line=first_line,
        last_line=last_line,
        proof=proof,
        text=output.text,
    )


def cast_all(
    chosen: Sequence[Program], machine: Machine, kept: Mapping[str, Record]
) -> Iterator[tuple[Record | None, str]]:
    """Cast programs one after the other: a record, and a line about it. What fails its proof has no record."""
    for program in chosen:
        try:
            record = cast(program, machine)
            yield record, f"proven {program.name}: {record.proof['exit_codes']}"
        except Unproven as err:
            yield None, f"UNPROVEN {err}"
        except Lacking as err:
            old = kept.get(program.name)
            yield old, f"skipped {program.name}: {err.what}{', kept as it was' if old else ''}"


def unchanged(records: Sequence[Record], chosen: Sequence[Program]) -> dict[str, Record]:
    """The records of programs that are still what they were when they were recorded, by name."""
    digests = {program.name: program.digest for program in chosen}
    return {r.program: r for r in records if r.origin == MEASURED and r.proof["program"] == digests.get(r.program)}


@contextmanager
def _slurm(tool: Path) -> Iterator[Path | None]:
    """A Slurm of its own, as long as the context; yields its state directory, None where it does not start."""
    with tempfile.TemporaryDirectory(prefix="foundry-slurm") as state:
        Path(state).chmod(0o755)
        started = subprocess.run([tool, "start", "--state", state, "--nodes", "3"], check=False)
        try:
            yield Path(state) if started.returncode == 0 else None
        finally:
            subprocess.run([tool, "stop", "--state", state], check=False, stdout=subprocess.DEVNULL)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m foundry.cast", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the records go")
    parser.add_argument("--keep", type=Path, help="records from which those of skipped programs are kept")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="the Python that has the frameworks")
    parser.add_argument("--slurm-sandbox", type=Path, help="a program that starts a Slurm for tests: start, stop, ...")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="cast only these; keep all other records")
    options = parser.parse_args(arguments)
    every = programs()
    kept = unchanged(read(options.keep) if options.keep is not None and options.keep.exists() else (), every)
    chosen = [program for program in every if not options.only or program.name in options.only]
    found = {name: record for name, record in kept.items() if options.only and name not in options.only}
    unproven = 0
    tool = options.slurm_sandbox.absolute() if options.slurm_sandbox and os.geteuid() == 0 else None
    with _slurm(tool) if tool and any("slurm" in program.needs for program in chosen) else nullcontext() as state:
        machine = Machine(options.python.absolute(), state, tool)
        for record, told in cast_all(chosen, machine, kept):
            sys.stdout.write(told + "\n")
            sys.stdout.flush()
            unproven += told.startswith("UNPROVEN")
            if record is not None:
                found[record.program] = record
                options.out.write_bytes(dump(_in_order(found)))  # at once: hours of runs are not lost to a break
    options.out.write_bytes(dump(_in_order(found)))
    sys.stdout.write(f"{len(found)} programs in {options.out}, {options.out.stat().st_size} bytes\n")
    return int(unproven > 0)


def _in_order(found: Mapping[str, Record]) -> list[Record]:
    """The records of the programs that there are, in their order, then those of the catalogue."""
    return [*(found[program.name] for program in programs() if program.name in found), *composed()]


if __name__ == "__main__":
    sys.exit(main())
