"""The grammar: a known cause in words that nobody has written a rule for."""

from __future__ import annotations

import pytest

from benchmarks.triage_new_words import read_anew
from perdure.triage.evidence.rules import own_categories
from perdure.triage.grammar import BY, Parsed, own_grammar

GRAMMAR = own_grammar()


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("FATAL: the licence proxy could not be reached", "lock"),
        ("FATAL: the catalogue proxy could not be reached", "net"),
        ("error: metadata server stopped responding after 40 s", "net"),
        ("ERROR archive server went silent: no answer to 5 requests", "net"),
        ("loader: fatal: the mount of /proj did not respond", "fs"),
        ("error: no space remains: quota of group astro", "disk_quota"),
        ("fatal: cannot allocate the halo buffer", "host_oom"),
        ("error: GPU ran out of memory for the neighbour list", "gpu_oom"),
        ("ERROR: number of ranks must be divisible by 8", "dist_config"),
        ("WidthMismatchError: left 3 and right 4 do not match in shape", "shape"),
        ("tool.errors.TokenExpiredError: expired token for the service", "auth"),
        ("ERROR: weather.nc: file is truncated", "data"),
        ("solver error: matrix is not positive definite", "numeric"),
        ("SchemaNotFoundError: table of units", "data"),
        ("ERROR: option --levels is not recognised", "config"),
        ("error: unknown option --levels", "config"),
        ("fatal error: plugin was built against an incompatible version", "version"),
        ("error: failed to open the file of bonds", "missing_file"),
        ("fatal: another process holds the lock", "lock"),
        ("rack 3 chassis: power module failed", "node_loss"),
        ("error: blade 7 unexpectedly rebooted", "node_loss"),
    ],
)
def test_wording_that_no_rule_has_is_read(line: str, category: str) -> None:
    parsed = GRAMMAR.parse(line.encode())
    assert parsed is not None
    assert GRAMMAR.means(parsed).category == category


@pytest.mark.parametrize(
    "line",
    [
        "epoch 3 finished",
        "saved the model",
        "loss 0.3 error 0.01",
        "12 files were not found in the cache, made anew",
        "",
        "x" * 9000,
    ],
)
def test_what_asserts_no_failure_is_not_read(line: str) -> None:
    assert GRAMMAR.parse(line.encode()) is None


def test_an_error_without_a_word_that_is_known_is_not_read() -> None:
    assert GRAMMAR.parse(b"BadShard: shard 7 has odd parts") is None
    assert GRAMMAR.parse(b"FATAL: the moon is blue") is None


@pytest.mark.parametrize(
    ("line", "speaker"),
    [
        (b"lib.errors.ShardError: cannot open the file", "ShardError"),
        (b"mytool[312]: error: cannot open the file", "mytool"),
        (b"cannot open the file", ""),
    ],
)
def test_it_says_who_speaks(line: bytes, speaker: str) -> None:
    assert GRAMMAR.parse(line) == Parsed(speaker, "missing", "file")


def test_each_pair_of_words_has_a_meaning_that_people_know() -> None:
    file, things = GRAMMAR.file, {thing.name for thing in GRAMMAR.file.thing}
    assert {kind.name for kind in file.kind} == set(file.meaning)
    for of_kind in file.meaning.values():
        assert "" in of_kind
        assert set(of_kind) <= things | {""}
        assert {category for category, _, _ in of_kind.values()} <= set(own_categories())


def test_it_is_surer_of_nothing_than_rules_are() -> None:
    chances = [p for of_kind in GRAMMAR.file.meaning.values() for _, p, _ in of_kind.values()]
    assert 0.05 < min(chances) < max(chances) < 0.8


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("ValueError: Unknown dataset flowers7", "config"),
        ("error: unsupported optimizer type lionx", "config"),
        ("ValueError: bf16 mixed precision requires a newer card", "config"),
        ("ValueError: batch_size must be positive", "config"),
        ("KeyError: the tile is empty", "data"),
        ("tiles.TileError: 'a.tile' not recognized as a supported file format", "data"),
        ("RuntimeError: input and weight must be on the current device", "device"),
        ("ValueError: values of gamma are not finite", "numeric"),
        ("rsync: error writing '/data/x.h5': Input/output error", "fs"),
        ("mytool: error: cannot open '/data/train/x.csv'", "missing_file"),
        ("error: no space left on device: '/tmp/spool/x'", "node_disk"),
        ("fatal: could not obtain a licence for the solver", "lock"),
        ("task preempted by the partition's owner", "preempt"),
        ("Error: object 'yhat' not found", "syntax"),
        ("fatal: pthread_create: resource temporarily unavailable", "env_limit"),
        ("error: the prolog hung on this host", "launcher"),
        ("solver: convergence failure after 400 sweeps: error", "numeric"),
        ("AssertionError: 78 4992", "assertion"),
    ],
)
def test_a_kind_of_error_is_read_in_any_words(line: str, category: str) -> None:
    parsed = GRAMMAR.parse(line.encode(), asserted=True)
    assert parsed is not None
    assert GRAMMAR.means(parsed).category == category


@pytest.mark.parametrize(
    ("line", "proven"),
    [
        ("ValueError: the option fuse is not accepted: invalid value", True),
        ("solver: error: the option fuse is not accepted: invalid value", False),
        ("ToolError: permission denied", False),
        ("mesher: fatal: matrix dimensions do not match", True),
        ("RuntimeError: GPU ran out of memory", False),
        ("error: metadata server stopped responding", True),
        ("error: the archive endpoint failed", False),
    ],
)
def test_a_reading_stops_a_job_only_where_such_readings_were_right(line: str, proven: bool) -> None:
    parsed = GRAMMAR.parse(line.encode(), asserted=True)
    assert parsed is not None
    assert GRAMMAR.means(parsed).proven is proven


def test_of_the_lines_of_rules_hardly_one_that_passes_would_be_stopped_without_its_rule() -> None:
    lines = [one for one in read_anew() if one.by == BY]
    lasting, stopped = [one for one in lines if one.may_stop], [one for one in lines if one.stops]
    assert sum(one.passes for one in lasting) > 0.05 * len(lasting)
    assert len(stopped) > 60
    assert sum(one.passes for one in stopped) <= 0.02 * len(stopped)
    assert sum(one.is_right for one in lines) > 0.5 * len(lines)
