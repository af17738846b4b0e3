"""``perdure completion``: scripts that complete commands, options and values, made from the commands themselves."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from perdure.cli.manual import every
from perdure.cli.options import StateDir
from perdure.errors import InputError
from perdure.installation import program_anywhere

_CHOICES = re.compile(r"[a-z][a-z-]*(?:\|[a-z][a-z-]*)+")  # viewer|operator: what may be given, in the help's words
_WORD = re.compile(r"\[?([A-Z]+)\b")  # the first that stands for a value in the help


class Takes(StrEnum):
    """What follows an option, or is an argument of a command."""

    NOTHING = "nothing"
    VALUE = "value"  # nobody can guess it
    FILE = "file"
    CHOICE = "choice"
    COMMAND = "command"
    JOB = "job"  # or a file; this and what follows is asked for: `completion_values`
    NODE = "node"
    RULE = "rule"
    POLICY = "policy"
    PLACEMENT = "placement"
    RETRY = "retry"
    TYPE = "type"
    CHAIN = "chain"


ASKED = tuple(Takes)[tuple(Takes).index(Takes.JOB) :]
"""What the scripts ask Perdure for when the key is pressed."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command."""

    names: tuple[str, ...]
    says: str
    takes: Takes
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A command by its words, ``node drain``, and what may follow; the program itself has none."""

    words: str
    says: str
    options: tuple[Option, ...]
    below: tuple[str, ...]
    takes: Takes
    choices: tuple[str, ...] = ()


def completion(
    context: typer.Context,
    shell: Annotated[
        Literal["bash", "zsh", "fish"] | None, typer.Argument(metavar="bash|zsh|fish", show_default=False)
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--values", metavar="KIND", help="Instead: the values that the scripts offer.")
    ] = None,
    state: StateDir = None,
) -> int:
    """Print a script that completes commands, options and their values.

    \b
    bash:  eval "$(perdure completion bash)"     in ~/.bashrc
    zsh:   eval "$(perdure completion zsh)"      in ~/.zshrc, below compinit
    fish:  perdure completion fish | source      in ~/.config/fish/config.fish

    Job ids and names of nodes are those of the service of this machine's state directory, where it answers within a
    second.

    Exit codes: 0 printed, 2 usage.
    """
    if kind is not None:
        from perdure.cli.completion_values import values

        typer.echo("\n".join(values(kind, state)))
        return 0
    if shell is None:
        raise InputError("completion", "name a shell", "Write perdure completion bash, zsh or fish")
    write = {"bash": in_bash, "zsh": in_zsh, "fish": in_fish}[shell]
    typer.echo(write(places(context.find_root()), program_anywhere()))
    return 0


def places(root: Any) -> list[Place]:
    """Every command, the program itself first; at the end what follows ``help`` and a command with others below it."""
    found = [_place(context) for context in every(root)]
    helped = [
        Place(f"help {place.words}", place.says, (), (), Takes.CHOICE, place.below)
        for place in found[1:]
        if place.below
    ]
    return [*found, *helped]


def _place(context: Any) -> Place:
    command = context.command
    words = str(context.command_path).partition(" ")[2]
    meant = getattr(command, "commands", {}).get(getattr(command, "default", ""), command)  # where none is named
    parameters = meant.get_params(context)
    options = tuple(_option(each) for each in parameters if each.param_type_name == "option")
    below = tuple(name for name, each in getattr(command, "commands", {}).items() if not each.hidden)
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    takes, choices = _takes(arguments[0]) if arguments else (Takes.NOTHING, ())
    choices = () if below else choices
    takes = Takes.COMMAND if words == "help" else takes
    return Place(words, command.get_short_help_str(60), options, below, takes, choices)


def _option(parameter: Any) -> Option:
    names = tuple(sorted((*parameter.opts, *parameter.secondary_opts)))  # the library has those of --help in a set
    if getattr(parameter, "is_flag", False):
        return Option(names, parameter.help or "", Takes.NOTHING)
    return Option(names, parameter.help or "", *_takes(parameter))


def _takes(parameter: Any) -> tuple[Takes, tuple[str, ...]]:
    """By the type of a parameter, and by the word that stands for it in the help."""
    kind = parameter.type_descriptor.annotation
    kind = get_args(kind)[0] if get_origin(kind) in (list, tuple) else kind
    if get_origin(kind) is Literal:
        return Takes.CHOICE, tuple(map(str, get_args(kind)))
    if _CHOICES.fullmatch(parameter.metavar or ""):
        return Takes.CHOICE, tuple(parameter.metavar.split("|"))
    word = (parameter.metavar or parameter.name or "").upper()
    if "JOB" in word:
        return Takes.JOB, ()
    if (named := _WORD.match(word)) and named[1].lower() in ASKED:
        return Takes(named[1].lower()), ()
    return (Takes.FILE if kind is Path or "LOG" in word or "CMD" in word else Takes.VALUE), ()


# ---------------------------------------------------------------- bash


_VALUES_TOO = (
    "_perdure_values_too() {  # commands, or values; files where neither fits",
    "    local values=()",
    '    [[ $1 == file ]] || { _perdure_values "$1"; values=("${COMPREPLY[@]}"); }',
    '    _perdure_words "$2"',
    '    COMPREPLY+=("${values[@]}")',
    "    [[ ${#COMPREPLY[@]} -gt 0 ]] || _perdure_files",
    "}",
)


def in_bash(found: Sequence[Place], program: str = "perdure") -> str:
    """A function for ``complete -F``, which asks `program` for values."""
    values, options, arguments = [], [], []
    for place in found:
        key = _path(place)
        options.append(f"            {_quoted(key)}) _perdure_words {_quoted(' '.join(_all_names(place)))} ;;")
        for option in place.options:
            if option.takes is not Takes.NOTHING:
                keys = "|".join(_quoted(f"{key} {name}") for name in option.names)
                values.append(f"        {keys}) {_bash_offer(option.takes, option.choices)}; return ;;")
        words = place.below or place.choices
        offer = _bash_offer(Takes.CHOICE if words else place.takes, words or ())
        if place.below and place.takes is not Takes.NOTHING:
            offer = f"_perdure_values_too {place.takes} {_quoted(' '.join(place.below))}"
        if place.takes is Takes.COMMAND:
            offer = _bash_offer(Takes.CHOICE, found[0].below)
        arguments.append(f"        {_quoted(key)}) {offer} ;;")
    known = "|".join(_quoted(_path(place)) for place in found[1:])
    return "\n".join(
        [
            "# Completion of perdure for bash.",
            '_perdure_words() { COMPREPLY=($(compgen -W "$1" -- "$cur")); }',
            "_perdure_files() { compopt -o default 2>/dev/null; COMPREPLY=(); }",
            "_perdure_values() {  # after the last comma of a list",
            '    local before=""',
            '    [[ $cur == *,* ]] && before="${cur%,*},"',
            f'    local offered="$({program} completion --values "$1" 2>/dev/null)"',
            '    COMPREPLY=($(compgen -P "$before" -W "$offered" -- "${cur##*,}"))',
            "}",
            *_VALUES_TOO,
            "_perdure_jobs() {",
            "    _perdure_values job",
            "    [[ ${#COMPREPLY[@]} -gt 0 ]] || _perdure_files",
            "}",
            "_perdure() {",
            '    local cur="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" place=perdure i',
            "    COMPREPLY=()",
            "    for ((i = 1; i < COMP_CWORD; i++)); do",
            "        [[ ${COMP_WORDS[i]} == -- ]] && { _perdure_files; return; }",
            '        case "$place ${COMP_WORDS[i]}" in',
            f'            {known}) place="$place ${{COMP_WORDS[i]}}" ;;',
            "        esac",
            "    done",
            '    case "$place $before" in',
            *values,
            "    esac",
            "    if [[ $cur == -* ]]; then",
            '        case "$place" in',
            *options,
            "        esac",
            "        return",
            "    fi",
            '    case "$place" in',
            *arguments,
            "    esac",
            "}",
            "complete -F _perdure perdure",
        ]
    )


def _bash_offer(takes: Takes, choices: Sequence[str]) -> str:
    if takes is Takes.CHOICE:
        return f"_perdure_words {_quoted(' '.join(choices))}"
    asked = f"_perdure_values {takes}" if takes in ASKED else "COMPREPLY=()"
    return {Takes.FILE: "_perdure_files", Takes.JOB: "_perdure_jobs"}.get(takes, asked)


# ---------------------------------------------------------------- zsh


def in_zsh(found: Sequence[Place], program: str = "perdure") -> str:
    """A function for ``compdef``, with what each command and option does."""
    lines = [
        "#compdef perdure",
        "_perdure() {",
        "    local place=perdure word before=${words[CURRENT-1]}",
        "    local -a offered",
        '    for word in "${(@)words[2,CURRENT-1]}"; do',
        '        case "$place $word" in',
        f'            {"|".join(_quoted(_path(place)) for place in found[1:])}) place="$place $word" ;;',
        "        esac",
        "    done",
        '    case "$place $before" in',
    ]
    for place in found:
        for option in place.options:
            if option.takes is not Takes.NOTHING:
                keys = "|".join(_quoted(f"{_path(place)} {name}") for name in option.names)
                lines.append(f"        {keys}) {_zsh_offer(option.takes, option.choices, program)}; return ;;")
    lines += ["    esac", "    if [[ $PREFIX == -* ]]; then", '        case "$place" in']
    for place in found:
        told = " ".join(_quoted(f"{name}:{_told(option.says)}") for option in place.options for name in option.names)
        lines.append(f"            {_quoted(_path(place))}) offered=({told}) ;;")
    lines += ["        esac", "        _describe -o option offered", "        return", "    fi", '    case "$place" in']
    says = {place.words: place.says for place in found}
    for place in found:
        below = place.below or (found[0].below if place.takes is Takes.COMMAND else ())
        within = f"{place.words} ".lstrip() if place.below else ""
        if below:
            told = " ".join(_quoted(f"{name}:{_told(says[f'{within}{name}'])}") for name in below)
            too = place.below and place.takes is not Takes.NOTHING
            more = f"; {_zsh_offer(place.takes, (), program)}" if too else ""
            lines.append(f"        {_quoted(_path(place))}) offered=({told}); _describe command offered{more} ;;")
        else:
            lines.append(f"        {_quoted(_path(place))}) {_zsh_offer(place.takes, place.choices, program)} ;;")
    lines += ["    esac", "}"]
    return "\n".join(
        [*lines, 'if [[ $funcstack[1] == _perdure ]]; then _perdure "$@"; else compdef _perdure perdure; fi']
    )


def _zsh_offer(takes: Takes, choices: Sequence[str], program: str) -> str:
    if takes is Takes.CHOICE:
        return f"compadd -- {' '.join(map(_quoted, choices))}"
    if takes in ASKED:
        asked = f'compset -P "*,"; compadd -- ${{(f)"$({_ask(takes, program)})"}}'
        return f"{asked}; _files" if takes is Takes.JOB else asked
    return "_files" if takes is Takes.FILE else "_message value"


# ---------------------------------------------------------------- fish


def in_fish(found: Sequence[Place], program: str = "perdure") -> str:
    """Lines of ``complete``, each with when it counts."""
    known = " ".join(_quoted(place.words) for place in found[1:])
    lines = [
        "# Completion of perdure for fish.",
        f"set -g __perdure_places {known}",
        "function __perdure_at --argument-names wanted",
        "    set -l place ''",
        "    for word in (commandline -opc)[2..-1]",
        '        set -l next (string trim -- "$place $word")',
        '        contains -- "$next" $__perdure_places; and set place $next',
        "    end",
        '    test "$place" = "$wanted"',
        "end",
        "complete -c perdure -e",
    ]
    says = {place.words: place.says for place in found}
    for place in found:
        at = f"complete -c perdure -n {_fish_quoted(f'__perdure_at {_fish_quoted(place.words)}')}"
        below = place.below or (found[0].below if place.takes is Takes.COMMAND else ())
        within = f"{place.words} ".lstrip() if place.below else ""
        alone = "" if place.takes in (Takes.JOB, Takes.FILE) else " -f"
        lines += [f"{at}{alone} -a {name} -d {_fish_quoted(_told(says[within + name]))}" for name in below]
        if place.takes in ASKED:
            asked = _fish_quoted(f"({_ask(place.takes, program)})")
            lines.append(f"{at}{'' if place.takes is Takes.JOB else ' -f'} -a {asked}")
        if place.choices:
            lines.append(f"{at} -f -a {_fish_quoted(' '.join(place.choices))}")
        lines += [f"{at} {_fish_option(option, program)}" for option in place.options]
    return "\n".join(lines)


def _fish_option(option: Option, program: str) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    asked = _fish_quoted(f"({_ask(option.takes, program)})")
    takes = {
        Takes.NOTHING: "",
        Takes.FILE: " -r -F",
        Takes.CHOICE: f" -x -a {_fish_quoted(' '.join(option.choices))}",
    }.get(option.takes, f" -x -a {asked}" if option.takes in ASKED else " -x")
    return f"{names}{takes} -d {_fish_quoted(_told(option.says))}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# ---------------------------------------------------------------- all


def _ask(takes: Takes, program: str) -> str:
    """The command that the scripts run to be told the values."""
    return f"{program} completion --values {takes} 2>/dev/null"


def _path(place: Place) -> str:
    return f"perdure {place.words}".strip()


def _all_names(place: Place) -> Iterator[str]:
    return (name for option in place.options for name in option.names)


def _told(text: str) -> str:
    """The first sentence, which fits next to a word."""
    return text.partition(". ")[0].partition("; ")[0].replace(":", " -").rstrip(".")[:80]


def _quoted(text: str) -> str:
    return shlex.quote(text)
