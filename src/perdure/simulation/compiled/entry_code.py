"""Machine code for entries alone.

numba optimises each function with all that it calls, and makes machine code of it, for it may be called from Python. A
kernel never is: its code lies within that of its entries. With ten calls within each other that is the same work ten
times. Here a function is kept as it was lowered until somebody asks where its machine code lies; then it is linked with
all that it calls, optimised once, and made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from llvmlite import binding as llvm
from numba.core import codegen
from numba.core.compiler_lock import global_compiler_lock


class LateLibrary(cast("Any", codegen.JITCodeLibrary)):  # type: ignore[misc]
    """What numba compiled of one function, made into machine code when that is asked for, and not before."""

    made = False

    def _optimize_final_module(self) -> None:
        """Optimise once. numba would do so in two steps, the first of them for counts of references: none are here."""
        passes, builder = self._codegen._module_pass_manager()  # noqa: SLF001 - numba has no other way
        passes.run(self._final_module, builder)

    def finalize(self) -> None:
        """Nothing is added any more; numba would optimise and make it now."""
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Where the machine code of a function lies; 0 if there is no such function, as for the wrapper of a kernel."""
        own = (each.name for each in self._final_module.functions if not each.is_declaration)
        if not self.made and name in own:
            self._make()
        found = int(super().get_pointer_to_function(name))
        self._codegen.has_code = found != 0
        return found

    def _make(self) -> None:
        self.made, self._finalized = True, False
        self._link_below(self._final_module)
        self._linking_libraries: list[Any] = []
        for each in self._final_module.functions:
            if not each.is_declaration and each.linkage == llvm.Linkage.linkonce_odr:
                each.linkage = "internal"  # nobody else calls this copy: what is inlined everywhere goes
        super().finalize()

    def _get_module_for_linking(self) -> Any:
        """Its functions with all that they call."""
        if self.made:
            return super()._get_module_for_linking()
        whole = self.own_module()
        self._link_below(whole)
        return whole

    def own_module(self) -> Any:
        """Its own functions alone, to be linked into another module that may have them already."""
        own = self._final_module.clone()
        for each in own.functions:
            if not each.is_declaration and each.linkage == llvm.Linkage.external:
                each.linkage = "linkonce_odr"
        return own

    def _link_below(self, module: Any) -> None:
        """Link all libraries that this one needs, and those that they need, each once."""
        seen: dict[Any, None] = {}
        left = [*self._linking_libraries]
        while left:
            library = left.pop()
            if library is self or library in seen:
                continue
            seen[library] = None
            self._reload_init.update(library._reload_init)  # noqa: SLF001 - numba has no other way
            if isinstance(library, LateLibrary) and not library.made:
                left += library._linking_libraries  # noqa: SLF001 - as above
                module.link_in(library.own_module(), preserve=True)
            else:
                module.link_in(library._get_module_for_linking(), preserve=True)  # noqa: SLF001 - as above


class _LateCode(cast("Any", codegen.JITCPUCodegen)):  # type: ignore[misc]
    _library_class = LateLibrary
    has_code = False  # the function that was asked for last

    def set_env(self, env_name: str, env: Any) -> None:
        """Tell the code that was asked for what it needs of Python; there is none of a kernel: numba would crash."""
        if self.has_code:
            super().set_env(env_name, env)


@contextmanager
def for_entries_alone(function: Any) -> Iterator[None]:
    """Inside the block, what is compiled becomes machine code only where Python calls it. One thread at a time."""
    compiler = function.targetctx.codegen()
    with cast("Any", global_compiler_lock):
        given = type(compiler)
        compiler.__class__ = _LateCode
        try:
            yield
        finally:
            compiler.__class__ = given
