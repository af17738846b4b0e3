"""Compiled code on disk, as numba keeps it: read without loading its compiler, made by one process at a time.

numba writes an index and a file for each set of types. Two processes that write at once may give both the same name,
and a third then runs code for other types. So code is made and written under a lock; who waited for it finds it made.
"""

from __future__ import annotations

import contextlib
import fcntl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from llvmlite import binding as llvm
from numba.core import caching

from perdure.simulation.compiled.entry_code import for_entries_alone

LOCK = "being-compiled.lock"


class _MachineCode(cast("Any", caching.CompileResultCacheImpl)):  # type: ignore[misc]
    """What is written of one function: its machine code, and of LLVM's form of it no more than its name."""

    def reduce(self, made: Any) -> tuple[Any, ...]:
        """As numba has it, for a function that no compiled one calls.

        numba keeps LLVM's form as well, so that other functions can take it in. To read that takes more than half of
        the time that a function takes to load. Of an entry it is asked for one thing, whether its name is there.
        """
        (name, kind, (code, _)), *rest = super().reduce(made)
        named = llvm.parse_assembly(f'define void @"{made.fndesc.llvm_cpython_wrapper_name}"() {{ unreachable }}')
        return ((name, kind, (code, named.as_bitcode())), *rest)


class KeptCode(cast("Any", caching.FunctionCache)):  # type: ignore[misc]
    """What numba keeps of one function, which is called from Python alone.

    That is what this user writes, and what an installer has made, if that is told.
    """

    _impl_class = _MachineCode

    def __init__(self, function: Callable[..., Any], installed: Path | None = None) -> None:
        super().__init__(function)
        self._files = [self._cache_file]
        if installed is not None:
            place = str(installed / Path(self.cache_path).name)
            names = self._impl.filename_base, self._impl.locator.get_source_stamp()
            self._files.insert(0, cast("Any", caching).IndexDataCacheFile(place, *names))

    def load_overload(self, sig: object, target_context: Any) -> object:
        """Read code. numba would load all that its compiler knows first, for which reading has no use: 0.3 s."""
        for file in self._files:
            data = file.load(self._index_key(sig, target_context.codegen()))
            if data is not None:
                return self._impl.rebuild(target_context, data)
        return None

    def save_overload(self, sig: object, data: object) -> None:
        """Write code; where that fails, a later process compiles it again."""
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)

    def has(self, sig: object, target_context: Any) -> bool:
        """Whether code for these types is kept."""
        key = self._index_key(sig, target_context.codegen())
        return any(key in file._load_index() for file in self._files)  # noqa: SLF001 - numba has no other way


def code_of(function: Any, types: object) -> Callable[..., Any]:
    """The code of a function for these types: read, or made and written by this process alone.

    Raises what was raised while it was made, by Ctrl-C for one.
    """
    kept = function._cache  # noqa: SLF001 - as above
    if not isinstance(kept, KeptCode) or kept.has(types, function.targetctx):
        with for_entries_alone(function):
            return cast("Callable[..., Any]", function.compile(types))
    with _alone(Path(kept.cache_path)), _raising_what_callbacks_raise(), for_entries_alone(function):
        return cast("Callable[..., Any]", function.compile(types))


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Inside the block no other process makes code that is kept there; without locks on that disk, some may."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            file = held.enter_context((folder / LOCK).open("ab"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _raising_what_callbacks_raise() -> Iterator[None]:
    """Raise at the end of the block what the compiler's callbacks have raised within it.

    A signal that comes while LLVM works is handled at the next Python code, which is a callback that is given the
    machine code. What is raised there is lost, and so is the code: numba then says "no compiled object yet", and no
    word of Ctrl-C or of a time that is over.
    """
    raised: list[BaseException] = []
    before = sys.unraisablehook

    def hear(found: Any) -> None:
        if found.exc_value is not None and "callback" in (found.err_msg or ""):
            raised.append(found.exc_value)
        else:
            before(found)

    sys.unraisablehook = hear
    try:
        yield
    except RuntimeError as err:
        raise (raised[0] if raised else err) from None
    finally:
        sys.unraisablehook = before
    if raised:
        raise raised[0]
