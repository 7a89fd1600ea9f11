"""Threads of NumPy's products, which encoding and searches run in many threads themselves."""

from threadpoolctl import ThreadpoolController

__all__ = ["set_numpy_threads"]


def set_numpy_threads(threads: int) -> None:
    """Limits NumPy's products in this process to some threads each, >= 1.

    By default each product uses all cores: its threads wait actively for each other, which triples a hybrid search's CPU time on two cores.
    This only affects NumPy's library, not that of FAISS. Call it in the main thread: once that has called it, OpenBLAS ignores other
    threads.
    """
    ThreadpoolController().select(prefix="libscipy_openblas").limit(limits=threads)
