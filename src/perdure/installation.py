"""How this installation of Perdure is called, who calls it, and what completes it: commands to paste."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perdure.errors import MissingExtra

EXTRAS: Mapping[str, tuple[str, ...]] = {  # extra -> the modules by which it is known to be there
    "sim": ("numba", "duckdb", "matplotlib"),
    "ml": ("sklearn", "lightgbm"),
    "rnn": ("torch", "onnxruntime"),
    "rl": ("torch", "onnxruntime", "gymnasium", "stable_baselines3"),
    "torch": ("torch",),
    "onnx": ("onnx",),
    "k8s": ("lightkube",),
    "postgres": ("psycopg",),
    "dask": ("dask", "distributed", "dask_jobqueue"),
}
_COMMAND = re.compile(r"(?<![\w./-])perdure (?=[a-z])")  # in a sentence the product is Perdure


def program() -> str:
    """What to type for ``perdure``: the bare name where the shell finds this very program, else its path."""
    found = shutil.which("perdure")
    if found is not None and Path(found).parent.samefile(Path(sys.executable).parent):
        return "perdure"
    return _called(_short)


def to_type(text: str) -> str:
    """A sentence in which each command begins with what this shell finds, as an error's "Start it: perdure up"."""
    called = program()
    return text if called == "perdure" else _COMMAND.sub(lambda _: f"{called} ", text)


def program_anywhere() -> str:
    """The same for a script that runs in any directory, whatever its ``PATH``."""
    return _called(str)


def _called(written: Callable[[Path], str]) -> str:
    own = Path(sys.executable).parent / "perdure"
    return shlex.quote(written(own)) if own.exists() else f"{shlex.quote(written(Path(sys.executable)))} -m perdure"


def user_name() -> str:
    """Who runs this command, as far as the system knows: in some containers a number alone."""
    try:
        return getpass.getuser().encode(errors="replace").decode()
    except (KeyError, OSError):
        return str(os.getuid())


def cache_folder() -> Path:
    """Where to keep what can be made again; not made yet. Raises `RuntimeError` for a user without a home."""
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        base = os.environ.get(name, "")
        if os.path.isabs(base):
            return Path(base) / "perdure"
    return Path.home() / ".cache" / "perdure"


def need(extra: str, command: str) -> None:
    """Raise `MissingExtra`, saying what to install, unless the extra's modules can be found. Imports none of them."""
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        what = f"needs the optional part {extra!r} ({', '.join(missing)} not installed)"
        raise MissingExtra(command, what, to_install(extra))


def to_install(extra: str) -> str:
    """What an error says of an optional part that is missing."""
    return f"Install it: {install_command(extra)}"


def install_command(extra: str) -> str:
    """The command that adds an optional part: from the checkout or the file that this was installed from."""
    return f"{shlex.quote(_short(Path(sys.executable)))} -m pip install {_requirement(extra)}"


def _requirement(extra: str) -> str:
    try:
        origin = json.loads(distribution("perdure").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = str(origin.get("url", ""))
    if not url.startswith("file://"):
        return shlex.quote(f"perdure[{extra}]")
    path = Path(unquote(urlsplit(url).path))
    if "dir_info" not in origin:
        return shlex.quote(f"perdure[{extra}] @ {url}")
    editable = "-e " if origin["dir_info"].get("editable") else ""
    name = _short(path)
    return editable + shlex.quote(f"{name if name.startswith(('.', '/')) else f'./{name}'}[{extra}]")


def _short(path: Path) -> str:
    """Relative to the working directory where it lies below that."""
    try:
        here, relative = Path.cwd(), os.path.relpath(path)
    except (OSError, ValueError):  # the working directory is gone
        return str(path)
    return str(path) if relative.startswith("..") or here == Path(here.anchor) else relative
