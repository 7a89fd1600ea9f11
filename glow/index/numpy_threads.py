"""NumPy's own threads, where texts are encoded on as many as there may be."""

from threadpoolctl import ThreadpoolController

__all__ = ["use_one_thread"]


def use_one_thread() -> None:
    """NumPy's products on one thread each: as many documents as there are threads are encoded at the same time.

    Of NumPy alone, whose library of these is not the one that FAISS brings.
    """
    ThreadpoolController().select(prefix="libscipy_openblas").limit(limits=1)
