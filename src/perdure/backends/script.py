"""What a job's script says of further files: `srun -o`, `torchrun --log-dir`, `mpirun`'s option, `> file` and `tee`.

The text is its owner's and may be anything. Nothing of it is run; it is read line by line, each a few times, up to
`MAX_BYTES`. Variables that are known or that the script assigns plainly are written out; what a rank's number stands
for, or nobody can tell, becomes one of three signs that match names later (`RANK`, `NUMBER`, `ANY`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import dropwhile, pairwise, takewhile
from typing import Any

import re2

MAX_BYTES, MAX_LINE, MAX_COMMANDS = 256 * 1024, 8192, 128
MAX_PATH = 1024
MAX_VARIABLES = 500
RANK, NUMBER, ANY = "\x01", "\x02", "\x03"
"""Signs in a path: a rank's number, another number, anything but a slash. Control characters are taken from scripts."""

_CONTROL = re2.compile(r"[\x00-\x08\x0b-\x1f]")
_ASSIGNS = re2.compile(r"([A-Za-z_]\w{0,63})=((?s:.*))")
_SETS = re2.compile(r"\b(?:cd|pushd)\s|\w=")
_NAME = r"([A-Za-z_]\w{0,63}|\d{1,3}|[@*#?$!])"
_VARIABLE = re2.compile(r"\$(?:\{" + _NAME + r"(?:[:#%/\^,\-+?=][^{}]{0,200})?\}|" + _NAME + ")")
_ENDS_EARLY = re2.compile(r"\bexit\b|\bset\s+-\w*e|\berrexit\b|^#!.*\s-\w*e|\btrap\b|\bexec\b")
_GOES_ON_BELOW = re2.compile(r"<<")
_SPEAK_OF_FAILURE = frozenset({"cp", "mv", "rm", "ln", "mkdir", "touch", "echo", "printf", "cat", "sbatch", "scancel"})
"""Commands that print why they fail: where they say nothing, they passed or were not run."""
_COMMAND = re2.compile(r"\$?\(\([^()]{0,500}\)\)|\$\([^()]{0,500}\)|`[^`]{0,500}`")
_SUBSTITUTED = re2.compile(r">\(([^()]{0,500})\)")
_LAUNCHES = re2.compile(r"\b(?:srun|torchrun|torch\.distributed|mpirun|mpiexec|accelerate)\b")
_PIECES = re2.compile(r"[()]|[;|&<>]+|[^\s;|&<>()]+")
_PATTERN = re2.compile(r"%(\d{0,2})([%AaJjNnstuxb])")

_RANKS = frozenset({"SLURM_PROCID", "RANK", "PERDURE_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
_NUMBERS = frozenset({"SLURM_LOCALID", "LOCAL_RANK", "SLURM_NODEID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"})
_REDIRECTS = re2.compile(r">|\btee\b")
_REDIRECTIONS = frozenset({">", ">>", ">|", "&>", "&>>", ">&"})
_NO_PROGRAMS = frozenset({
    "cat", "echo", "printf", "sed", "awk", "grep", "cut", "date", "env", "hostname", "ls", "touch", "tee", "nvidia-smi",
    "scontrol", "squeue", "[", "[[", "test",
})  # fmt: skip
"""What they write is not a log."""
_BEFORE_PROGRAMS = frozenset(
    {"if", "then", "else", "elif", "while", "until", "do", "!", "time", "{", "export", "declare"}
)
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
MAX_DEPTH = 8  # of subshells, and of shells that a shell starts by -c
_FLAGS = frozenset({
    "exclusive", "label", "unbuffered", "overlap", "exact", "kill-on-bad-exit", "no-kill", "verbose", "quiet",
    "multi-prog", "pty", "overcommit", "oversubscribe", "immediate", "hold", "preserve-env", "disable-status",
    "contiguous", "standalone", "no-python", "tag-output", "allow-run-as-root", "display-map", "report-bindings",
})  # fmt: skip
"""Options of launchers that take no value: the word after them may be the program."""
_SHORT_FLAGS = frozenset("EHIkKlOQsuvVX")


@dataclass(frozen=True, slots=True)
class Said:
    """What a script says of its output. Paths may hold signs, and be relative to the working directory."""

    files: tuple[str, ...] = ()  # of ranks, or of what the script sends elsewhere
    appended: tuple[str, ...] = ()  # of these, those that are not cut
    directories: tuple[str, ...] = ()  # below which launchers make one for each rank


def read_script(script: bytes, known: Mapping[str, str], patterns: Mapping[str, str]) -> Said:
    """Read what a script says; `known` are variables that are set, `patterns` the values of %-patterns of srun."""
    reading = _Reading(dict(known), dict(patterns))
    for line in lines_of(script):
        if not line.startswith("#"):
            reading.take(line)
    found = (reading.files, reading.appended, reading.directories)
    return Said(*(tuple(dict.fromkeys(paths)) for paths in found))


def lines_of(script: bytes) -> Iterator[str]:
    """A script's lines with those that a backslash continues, none longer than `MAX_LINE`."""
    joined = ""
    for line in _CONTROL.sub("", script[:MAX_BYTES].decode("utf-8", "replace")).split("\n"):
        joined += line.strip()
        if joined.endswith("\\") and len(joined) < MAX_LINE:
            joined = joined[:-1] + " "
            continue
        if joined and len(joined) <= MAX_LINE:
            yield joined
        joined = ""
    if joined and len(joined) <= MAX_LINE:
        yield joined


def survives_steps(script: bytes) -> bool:
    """Whether a script goes on whatever becomes of its steps: ``srun ... || true``, each time it calls srun.

    >>> survives_steps(b"srun train || true"), survives_steps(b"srun train"), survives_steps(b"srun a | tee b || :")
    (True, False, True)
    """
    survived = []
    for line in lines_of(script):
        commands = list(_commands(_words(line))) if "srun" in line and not line.startswith("#") else []
        for at, (words, _) in enumerate(commands):
            if any(word.rpartition("/")[2] == "srun" for word in words):
                rest = list(dropwhile(lambda command: command[1] in ("|", "|&"), commands[at:]))
                after = rest[1][0] if rest[0][1] == "||" and len(rest) > 1 else []
                survived.append(after[:1] in (["true"], [":"]))
    return bool(survived) and all(survived)


def ends_with_test(script: bytes) -> bool:
    """Whether a script's last line is a test and what to do if it is true: false, it is the script's exit code.

    Only where what is done would say so if it failed, and no earlier line can end the script.

    >>> ends_with_test(b"srun train\\n[ -f notes ] && cp notes out"), ends_with_test(b"[ -f a ] && srun train")
    (True, False)
    """
    lines = [line for line in lines_of(script) if not line.startswith("#") or line.startswith("#!")]
    if not lines or any(compiled.search(line) for line in lines for compiled in (_ENDS_EARLY, _GOES_ON_BELOW)):
        return False
    commands = list(_commands(_words(lines[-1])))
    test, sign = commands[0]
    done = [words[0] for words, _ in commands[1:] if words]
    return test[:1] in (["["], ["[["], ["test"]) and sign == "&&" and len(done) == 1 and done[0] in _SPEAK_OF_FAILURE


@dataclass(slots=True)
class _Reading:
    """What was found so far, and the variables that are set."""

    variables: dict[str, str]
    patterns: dict[str, str]
    files: list[str] = field(default_factory=list)
    appended: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    commands: int = 0
    folder: str = ""  # into which the script went; "" while it is where it was started
    folders: list[str] = field(default_factory=list)  # to which the open subshells return

    def take(self, line: str, depth: int = 0) -> None:
        """Read a line: its simple commands, one after the other."""
        if _LAUNCHES.search(line) is not None or _REDIRECTS.search(line) is not None:
            if self.commands >= MAX_COMMANDS:
                return
            self.commands += 1
        elif _SETS.search(line) is None:
            return
        speaks = False
        for words, end in _commands(_words(line)):
            speaks = self._command(words, speaks, depth) and end in ("|", "|&")
            if end == "(" and len(self.folders) < MAX_DEPTH:
                self.folders.append(self.folder)
            elif end == ")" and self.folders:
                self.folder = self.folders.pop()

    def _command(self, words: list[str], speaks: bool, depth: int) -> bool:
        """Read a simple command. Whether it, or one before it in its pipeline (`speaks`), is a program with a log."""
        for at, word in enumerate(words):
            self._launcher(word.rpartition("/")[2], words[at + 1 :])
        called = list(dropwhile(lambda word: word in _BEFORE_PROGRAMS or word.startswith("-"), words))
        assigned = list(takewhile(bool, map(_ASSIGNS.fullmatch, called)))
        if assigned and len(assigned) == len(called):
            self._assign(assigned)
        name, *arguments = called[len(assigned) :] or [""]
        if name in ("cd", "pushd"):
            self._go(next((word for word in arguments if word == "-" or word[:1] != "-"), "~"))
        for at, (shell, option) in enumerate(pairwise(words[:-1])):
            if depth < MAX_DEPTH and shell.rpartition("/")[2] in _SHELLS and re.fullmatch("-[a-z]{0,8}c", option):
                self.take(words[at + 2], depth + 1)
        speaks = speaks or name.rpartition("/")[2] not in _NO_PROGRAMS
        if speaks:
            self._redirects(words)
        return speaks

    def _assign(self, assigned: list[Any]) -> None:
        for name, value in (found.groups() for found in assigned):
            if len(self.variables) < MAX_VARIABLES:
                self.variables[name] = self._written_out(value)

    def _launcher(self, name: str, words: list[str]) -> None:
        if name == "srun":
            for option, value in _options(words):
                if option in ("-o", "--output", "-e", "--error"):
                    self._add(self.files, value, step=True)
        elif name in ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate"):
            for option, value in _options(words):
                if option.replace("_", "-") == "--log-dir":
                    self._add(self.directories, value)
        elif name in ("mpirun", "mpiexec"):
            for option, value in _options(words):
                if option in ("--output-filename", "-output-filename"):
                    self._add(self.directories, value)

    def _redirects(self, words: list[str]) -> None:
        for word, target in pairwise(words):
            if word in _REDIRECTIONS:
                self._add(self.files, target)
                if ">>" in word:
                    self._add(self.appended, target)
        if "tee" in words:
            after = words[words.index("tee") + 1 :]
            options = list(takewhile(lambda word: word.startswith("-"), after))
            for target in takewhile(lambda word: word not in _REDIRECTIONS | {"<"}, after[len(options) :]):
                self._add(self.files, target)
                if {"-a", "--append"} & set(options):
                    self._add(self.appended, target)

    def _go(self, folder: str) -> None:
        """Where ``-`` and a folder that is not known lead is not known."""
        path = ANY if folder == "-" else self._written_out(folder).rstrip("/")
        self.folder = path if path.startswith(("/", ANY)) or not self.folder else f"{self.folder}/{path}"

    def _add(self, to: list[str], value: str, step: bool = False) -> None:
        path = self._written_out(value)
        if step:
            path = _PATTERN.sub(lambda found: self.patterns.get(found[2], found[0]), path)
        if path and len(path) <= MAX_PATH and path not in ("none", "all", "-", "/dev/null") and not path.isdecimal():
            to.append(path if path.startswith("/") or not self.folder else f"{self.folder}/{path}")

    def _written_out(self, text: str) -> str:
        def value(found: object) -> str:
            name = found[1] or found[2]  # type: ignore[index]
            if name in _RANKS:
                return RANK
            return self.variables.get(name, NUMBER if name in _NUMBERS else ANY)

        text = "$HOME" + text[1:] if text == "~" or text.startswith("~/") else text
        return str(_VARIABLE.sub(value, _COMMAND.sub(ANY, text)))[: 2 * MAX_PATH]


def _words(line: str) -> list[str]:
    """A line cut as a shell does, roughly; where its quotes do not match, as if there were none."""
    for _ in range(3):  # one within another
        line = _COMMAND.sub(ANY, line)
    line = _SUBSTITUTED.sub(r"| \1 ;", line)  # exec > >(tee file)
    cutter = shlex.shlex(line, posix=True, punctuation_chars=";|&<>()")
    cutter.whitespace_split, cutter.commenters = True, "#"
    try:
        return list(cutter)
    except ValueError:
        return [word.strip("\"'") for word in _PIECES.findall(line)]


def _commands(words: list[str]) -> Iterator[tuple[list[str], str]]:
    """The simple commands among the words of a line, each with what ends it; "" at the end of the line."""
    command: list[str] = []
    for word in words:
        signs = _PIECES.findall(word) if word and not word.strip(";|&<>()") else [word]  # ");" and ")>" are two
        for sign in signs:
            if sign and not sign.strip(";|&()"):
                yield command, sign
                command = []
            else:
                command.append(sign)
    yield command, ""


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """The options of a launcher with their values, up to the program that it starts."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or word == "--":
            return
        option, equals, value = word.partition("=")
        following = words[at] if at < len(words) else ""
        is_long = "-" in option[1:] or (len(option) > 2 and option[1:].isalpha() and option[1] not in "oe")
        if is_long:
            if equals:
                yield option, value
            elif option.lstrip("-") not in _FLAGS and not set(option[1:]) <= _SHORT_FLAGS:
                at += 1
                yield option, following
        elif len(word) > 2 and word[1] not in _SHORT_FLAGS:
            yield word[:2], word[2:].removeprefix("=")
        elif word[1:2] not in _SHORT_FLAGS:
            at += 1
            yield word, following


def pattern_of(component: str) -> str:
    """A component of a path with signs, as a regular expression that does not backtrack over numbers."""
    pieces, told = [], False
    for piece in re.split("([\x01-\x03])", component):
        if piece == RANK:
            pieces.append(r"\d{1,10}+" if told else r"(?P<rank>\d{1,10}+)")
            told = True
        elif piece == NUMBER:
            pieces.append(r"\d{1,10}+")
        elif piece == ANY:
            pieces.append("[^/]{0,64}")
        else:
            pieces.append(re.escape(piece))
    return "".join(pieces)
