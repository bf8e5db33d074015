"""Two compilers that take less time than Numba's own, for whoever waits for the first call.

Numba takes every function through LLVM to the end, also those that another compiled function
absorbs a moment later: a loop with twenty small parts pays for twenty-one. A *part* is kept as it
was lowered, and optimised where it is put in. It has no file in the cache either: the file of the
loop has its parts inside. Python cannot call a part: that ends in a TypeError.

A *loop* is optimised once with all its parts, not first on its own; and nothing is unrolled. Inner
loops are vectorised, several vectors at a time; unrolling would repeat what is left over at their
ends, which is most of the machine code and little of the time.

Both remember the options they compile with as one value. Numba asks thousands of times whether two
sets of options are alike, and makes a table of all of them for every answer.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
from numba.core import config
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags

USED = (
    "_ensure_finalized",
    "_optimize_functions",
    "_optimize_final_module",
    "_finalize_final_module",
    "_finalize_dynamic_globals",
)
"""What is Numba's own business and changed here; where one is missing, its compiler is taken."""


CALLED_BY_PYTHON = "_ZN7cpython"
"""How names of functions begin that Python can call."""


class SettledFlags(Flags):
    """Numba's options of a compilation, of which none changes any more once two were compared."""

    def __init__(self, copy_from: Any = None) -> None:
        super().__init__(copy_from)
        self._table: dict[str, Any] | None = None
        self._hash: int | None = None

    @property
    def table(self) -> dict[str, Any]:
        """All options and their values."""
        if self._table is None:
            self._table = self.values()
        return self._table

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SettledFlags):
            return self.table == other.table
        return super().__eq__(other)


class LoopLibrary(JITCodeLibrary):
    """The machine code of a loop."""

    def add_ir_module(self, ir_module: Any) -> None:
        """Take in code; what unpacks Python's arguments is long and run once: it stays as it is."""
        for function in ir_module.functions:
            if function.name.startswith(CALLED_BY_PYTHON) and not function.is_declaration:
                function.attributes.add("noinline")
                function.attributes.add("optnone")
        super().add_ir_module(ir_module)

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        codegen, module = self._codegen, self._final_module
        # As Numba does it, so that loops have the form in which they are vectorised.
        cheap, builder = codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
        )
        cheap.run(module, builder)
        settings: Any = config  # its names are made at import, where no type checker sees them
        options = llvm.create_pipeline_tuning_options(speed_level=int(settings.OPT))
        options.loop_vectorization, options.slp_vectorization = True, False
        options.loop_unrolling = False
        builder = llvm.create_pass_builder(codegen._tm, options)
        manager = builder.getModulePassManager()
        manager.add_refprune_pass()
        manager.run(module, builder)


class PartLibrary(JITCodeLibrary):
    """Code to be put into other functions, in LLVM's language."""

    @property
    def codegen(self) -> Any:
        """Who writes addresses into machine code, of which there is none."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Write nothing."""

    def get_pointer_to_function(self, name: str) -> int:
        """Join the parts of the part; Python is given the address of what says no."""
        self._ensure_finalized()
        refuse = ctypes.pythonapi.PyErr_BadArgument  # sets a TypeError, returns nothing
        return ctypes.cast(refuse, ctypes.c_void_p).value or 0

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class LoopCompiler(CompilerBase):
    """Numba's compiler, with another place for what it makes."""

    library: type[JITCodeLibrary] = LoopLibrary

    def compile_extra(self, func: Any) -> Any:
        """Compile with options that are quick to compare."""
        state: Any = self.state
        state.flags = SettledFlags(state.flags)
        return super().compile_extra(func)

    def define_pipelines(self) -> Any:
        """Numba's own."""
        state: Any = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return [DefaultPassBuilder.define_nopython_pipeline(state)]


class PartCompiler(LoopCompiler):
    """The same for parts."""

    library = PartLibrary


def _known() -> bool:
    """Say whether this Numba and its LLVM are of the kind that is known here."""
    known = all(hasattr(JITCodeLibrary, name) for name in USED)
    return known and hasattr(llvm, "create_pipeline_tuning_options")


NO_ARRAYS_MADE: dict[str, Any] = {"_nrt": False}
"""For what makes no array: nobody counts who holds one, which is a third of the code."""
LOOP: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    **NO_ARRAYS_MADE,
    **({"pipeline_class": LoopCompiler} if _known() else {}),
}
"""How `njit` compiles a loop."""
PART: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    **NO_ARRAYS_MADE,
    **({"pipeline_class": PartCompiler} if _known() else {}),
}
"""How it compiles a part; also for the `jit_options` of an overload."""
