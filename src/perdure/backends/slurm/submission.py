"""Options of ``sbatch``, in a script and on a command line, as a chain of jobs keeps them for all its links."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perdure.backends.slurm.request import ENVIRONMENT, directive_words
from perdure.errors import InputError

_VALUE_FLAGS = frozenset({  # long options without a value, or whose value is behind "=" only
    "contiguous", "exclusive", "get-user-env", "hold", "ignore-pbs", "kill-on-invalid-dep", "nice", "no-kill",
    "no-requeue", "overcommit", "oversubscribe", "parsable", "propagate", "quiet", "reboot", "requeue", "share",
    "spread-job", "test-only", "use-min-nodes", "verbose", "wait", "bell", "no-bell", "help", "usage", "version",
})  # fmt: skip
_SHORT_FLAGS = "hHkOsQvVW"
_JOINED_FLAGS = _SHORT_FLAGS.replace("k", "")  # -k may have a value
_SHORT = {"a": "array", "b": "begin", "C": "constraint", "d": "dependency", "D": "chdir", "e": "error", "H": "hold",
          "J": "job-name", "o": "output", "M": "clusters", "p": "partition", "t": "time", "W": "wait",
          "h": "help", "V": "version"}  # fmt: skip
_ONCE = frozenset({"begin", "dependency", "hold"})  # they are about one job; the first link has them
_SHORTEST = {"array": "ar", "begin": "beg", "chdir": "ch", "comment": "com", "dependency": "dep", "hold": "ho",
             "job-name": "j", "partition": "part", "test-only": "te", "wrap": "wr"}  # fmt: skip
"""As far as sbatch lets long options be shortened."""
_REFUSED = {
    "array": "a chain is one job at a time",
    "cluster": "a chain stays on the cluster of perdure keep",
    "clusters": "a chain stays on the cluster of perdure keep",
    "wrap": "a chain needs a script",
    "test-only": "a chain is really submitted",
    "wait": "perdure keep waits itself",
    "help": "it is an option of sbatch alone",
    "usage": "it is an option of sbatch alone",
    "version": "it is an option of sbatch alone",
}


@dataclass(frozen=True, slots=True)
class SbatchOption:
    """One option: its long name, and the words that it was written with."""

    name: str
    value: str | None
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Submission:
    """What ``sbatch`` is told for every link."""

    options: tuple[str, ...]
    script: str
    arguments: tuple[str, ...] = ()


def submission_of(words: Sequence[str], arguments: Sequence[str] = ()) -> Submission:
    """The script, its arguments, and the options of sbatch before and after it. Raises `InputError`.

    >>> submission_of(["train.sh", "-N", "2", "--gres=gpu:4", "--time", "2:00:00"])
    Submission(options=('-N', '2', '--gres=gpu:4', '--time', '2:00:00'), script='train.sh', arguments=())
    """
    options, bare = split_options(words)
    if not bare:
        raise InputError("keep", "no script is named", "Write perdure keep train.sh")
    for option in options:
        _check(option, "keep")
    return Submission(tuple(word for option in options for word in option.words), bare[0], (*bare[1:], *arguments))


def split_options(words: Sequence[str]) -> tuple[list[SbatchOption], list[str]]:
    """Options of sbatch, each with its value, and the words that belong to none."""
    options: list[SbatchOption] = []
    bare: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            name = _whole(name)
            takes = not equals and name not in _VALUE_FLAGS and bool(rest)
            more = (rest.pop(0),) if takes else ()
            options.append(SbatchOption(name, value if equals else (more[0] if more else None), (word, *more)))
        elif word.startswith("-") and len(word) > 1:
            if word[1] in _JOINED_FLAGS and len(word) > 2:  # as in -Hn2
                rest.insert(0, f"-{word[2:]}")
                word = word[:2]
            letter, value = word[1], word[2:].removeprefix("=")
            takes = not value and letter not in _SHORT_FLAGS and bool(rest)
            more = (rest.pop(0),) if takes else ()
            name = _SHORT.get(letter, letter)
            options.append(SbatchOption(name, value or (more[0] if more else None), (word, *more)))
        else:
            bare.append(word)
    return options, bare


def _whole(name: str) -> str:
    return next(
        (whole for whole, least in _SHORTEST.items() if name.startswith(least) and whole.startswith(name)), name
    )


def script_options(script: bytes, where: str) -> list[SbatchOption]:
    """Those of the ``#SBATCH`` lines. Raises `InputError`, also for what no chain can be made of."""
    options, _ = split_options(directive_words(script, where))
    for option in options:
        _check(option, where)
    return options


def options_in_force(
    script: Sequence[SbatchOption], environment: Mapping[str, str], command_line: Sequence[SbatchOption]
) -> list[SbatchOption]:
    """All options that sbatch takes, the ones that win last: its command line overrides variables, which override
    the script (sbatch(1), INPUT ENVIRONMENT VARIABLES).

    >>> options = options_in_force(split_options(["-t", "10"])[0], {"SBATCH_TIMELIMIT": "5"}, ())
    >>> last_value(options, "time")
    '5'
    """
    variables = [
        SbatchOption(name, environment[variable], (f"{variable}={environment[variable]}",))
        for variable, name in ENVIRONMENT.items()
        if variable in environment
    ]
    return [*script, *variables, *command_line]


def last_option(options: Sequence[SbatchOption], name: str) -> SbatchOption | None:
    """Of an option that is given twice, the last counts."""
    return next((each for each in reversed(options) if each.name == name), None)


def last_value(options: Sequence[SbatchOption], name: str) -> str | None:
    """The value of `last_option`."""
    return found.value if (found := last_option(options, name)) else None


def for_later_links(options: Sequence[SbatchOption]) -> list[SbatchOption]:
    """Without what was for the first link only."""
    return [each for each in options if each.name not in _ONCE]


def words_of(options: Sequence[SbatchOption]) -> list[str]:
    return [word for option in options for word in option.words]


def link_script(options: Sequence[SbatchOption], command: Sequence[str]) -> str:
    """The batch script of a link: the script's own options, and what it runs."""
    lines = ["#!/bin/sh", *(f"#SBATCH {shlex.join(option.words)}" for option in options)]
    return "\n".join([*lines, f"exec {shlex.join(command)}", ""])


def interpreter_of(script: bytes, where: str) -> list[str]:
    """What the script's first line says that it is run by. Raises `InputError` where it says nothing.

    >>> interpreter_of(b"#!/bin/bash -l\\ntrue\\n", "train.sh")
    ['/bin/bash', '-l']
    """
    if b"\r\n" in script:
        raise InputError(where, "it has the line breaks of DOS, which sbatch refuses", "Run dos2unix on it")
    first = script.split(b"\n", 1)[0].decode("utf-8", "replace")
    if not first.startswith("#!") or not first[2:].strip():
        raise InputError(where, "it does not begin with #!", "Write #!/bin/bash into its first line, as sbatch asks")
    program, _, argument = first[2:].strip().partition(" ")
    return [program, *([argument.strip()] if argument.strip() else [])]


def _check(option: SbatchOption, where: str) -> None:
    if why := _REFUSED.get(option.name):
        raise InputError(f"{where}: --{option.name}", why, "Leave it out")
