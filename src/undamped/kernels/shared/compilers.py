"""Two compilers that take less time than Numba's own, for the first call of a network.

Numba takes every function through LLVM to the end, also those that another compiled function
absorbs a moment later: a loop with twenty small parts pays for twenty-one. A *part* is kept as it
was lowered, and optimised where it is put in. It has no file in the cache either: the file of the
loop has its parts inside. Python cannot call a part: that ends in a TypeError.

A *loop* is optimised once with all its parts, not first by itself; and nothing is unrolled. Inner
loops are vectorised, several vectors at a time; unrolling would repeat what is left over at their
ends, which is most of the machine code and little of the time.

Why this is kept: CPU seconds of a cold first call, forward and backward, in a fresh cache (mean of
three, interleaved with Numba's own compiler on the same busy machine), and of a later pass over 200
steps of 16 sequences with 64 units (best of twelve):

    lstm       1.11 s instead of 1.65 s        6.8 ms instead of 6.9 ms
    rellstm    1.96 s instead of 2.79 s       14.7 ms instead of 15.6 ms
    sab        1.93 s instead of 2.83 s       11.6 ms instead of 12.5 ms
    unicornn and linoss, whose kernels do not use it: no difference
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
from numba.core import config
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder

USED = (
    "_ensure_finalized",
    "_optimize_functions",
    "_optimize_final_module",
    "_finalize_final_module",
    "_finalize_dynamic_globals",
)
"""Private methods of Numba that are overridden here; where one is missing, its compiler is used."""


CALLED_BY_PYTHON = "_ZN7cpython"
"""How names of functions begin that Python can call."""


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

    def define_pipelines(self) -> Any:
        """Numba's own."""
        state: Any = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return [DefaultPassBuilder.define_nopython_pipeline(state)]


class PartCompiler(LoopCompiler):
    """The same for parts."""

    library = PartLibrary


def _is_supported() -> bool:
    """Return whether this Numba and its LLVM have what is used here."""
    supported = all(hasattr(JITCodeLibrary, name) for name in USED)
    return supported and hasattr(llvm, "create_pipeline_tuning_options")


NO_ARRAYS_MADE: dict[str, Any] = {"_nrt": False}
"""For what allocates no array: without reference counts, which are a third of the code."""
LOOP: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    **NO_ARRAYS_MADE,
    **({"pipeline_class": LoopCompiler} if _is_supported() else {}),
}
"""How `njit` compiles a loop."""
PART: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    **NO_ARRAYS_MADE,
    **({"pipeline_class": PartCompiler} if _is_supported() else {}),
}
"""How it compiles a part; also for the `jit_options` of an overload."""
