"""A user's own scheduling policy: a class or a value in a Python file that the user names, ``mine.py:MyPolicy``."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import cast

from perdure.errors import ConfigError, PerdureError
from perdure.scheduling.protocol import PlanningPolicy, Policy

_RANKING = ("name", "preemptive", "blocks", "ranking")


def is_policy_file(text: str) -> bool:
    """Whether a policy is named by its file: such a name is the user's word that the file may be run."""
    return text.partition(":")[0].endswith(".py")


def policy_in_file(text: str) -> Policy:
    """Run the file of ``FILE.py:NAME`` and take the policy from it; a class is called without arguments.

    Raises `ConfigError`, naming the file and the line.
    """
    file, _, name = text.partition(":")
    if not name:
        raise ConfigError(f"policy {text!r}", "it does not say which policy of the file", f"Write {file}:MyPolicy")
    path = Path(file)
    with blaming(path):
        found = getattr(_module(path), name, None)
        policy = _made(found, file) if isinstance(found, type) else found
    if policy is None:
        raise ConfigError(file, f"it defines no {name!r}", "Name a class or a value of that file")
    if not isinstance(policy, PlanningPolicy) and (lacks := [word for word in _RANKING if not hasattr(policy, word)]):
        what = f"{name} is not a policy: it has no {', '.join(lacks)}"
        raise ConfigError(file, what, "Give it those, or name, round_s and planner")
    return cast("Policy", policy)


@contextmanager
def blaming(path: Path) -> Iterator[None]:
    """What goes wrong inside the block in code of the file is a `ConfigError` that names its line there.

    What goes wrong elsewhere is left alone: it is not a fault of the policy.
    """
    try:
        yield
    except PerdureError:
        raise
    except SyntaxError as err:
        raise ConfigError(f"{path}:{err.lineno}", err.msg, "Fix the policy") from err
    except Exception as err:
        lines = [at.lineno for at in traceback.extract_tb(err.__traceback__) if Path(at.filename) == path.absolute()]
        if not lines:
            raise
        raise ConfigError(f"{path}:{lines[-1]}", f"{type(err).__name__}: {err}", "Fix the policy") from err


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(str(path), "no such file", "Name a Python file that you may read")
    spec = importlib.util.spec_from_file_location(f"perdure_policy_{path.stem}", path.absolute())
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def _made(kind: type, file: str) -> object:
    try:
        return kind()
    except TypeError as err:
        if err.__traceback__ is not None and err.__traceback__.tb_next is not None:
            raise
        raise ConfigError(file, f"{kind.__name__} cannot be made: {err}", "Let it be made without arguments") from err
