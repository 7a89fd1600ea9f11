"""Threads of NumPy during encoding, which runs in many threads itself."""

from threadpoolctl import ThreadpoolController

__all__ = ["use_one_thread"]


def use_one_thread() -> None:
    """Limits NumPy's products to one thread each: as many documents as there are threads are encoded at the same time.

    This only affects NumPy's library, not that of FAISS.
    """
    ThreadpoolController().select(prefix="libscipy_openblas").limit(limits=1)
