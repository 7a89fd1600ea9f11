"""Which runner a build asked for."""

import importlib
from pathlib import Path

from glow.errors import ConfigError, DependencyError
from glow.index.milvus import Insert
from glow.index.vectors import VectorRows
from glow_index_builder.encoding.encode import EncodeJob
from glow_index_builder.encoding.process_runner import ProcessRunner
from glow_index_builder.encoding.ray_import import ImportJob, RayImport
from glow_index_builder.encoding.ray_runner import RayRunner
from glow_index_builder.encoding.runner import Runner, ThreadRunner
from glow_index_builder.options import BuildOptions

__all__ = ["make_insert", "make_runner", "require_runner"]

MAX_KILLS = 2


def make_runner(options: BuildOptions, job: EncodeJob, kills: int) -> Runner:
    """The runner of a build, not started yet.

    Args:
        options: of the build.
        job: what there is to do.
        kills: runs of this build that were killed while they encoded in their own process. After two, a document may
            be to blame, and only from another process can it be found.
    """
    if options.runner == "ray":
        return RayRunner(job, options.workers, options.ray_address)
    if options.workers == 1 and kills < MAX_KILLS:
        return ThreadRunner(job)
    return ProcessRunner(job, options.workers)


def make_insert(
    options: BuildOptions, vectors: VectorRows, columns: Path, documents: int, passages: Path | None
) -> Insert | None:
    """What puts vectors into a server from Ray's workers; None where this process does.

    Args:
        options: of the build, with a store.
        vectors: what they read, from the same disk.
        columns: folder with the version's columns.
        documents: that they describe.
        passages: folder of the map of passages; None: rows are documents.
    """
    if options.runner != "ray" or options.store is None:
        return None
    cut = None if passages is None else passages.resolve()
    job = ImportJob(options.store, vectors, columns.resolve(), documents, cut)
    return RayImport(job, options.workers, options.ray_address)


def require_runner(options: BuildOptions) -> None:
    """Refuses a runner that is not there, before any work.

    Raises:
        DependencyError: if Ray was asked for and is not installed.
        ConfigError: if the address of a Ray cluster is given without Ray.
    """
    if options.runner != "ray":
        if options.ray_address:
            raise ConfigError("--ray-address needs --runner ray")
        return
    try:
        importlib.import_module("ray")
    except ImportError as error:
        raise DependencyError(
            "--runner ray needs the package ray: install the extra `scale` (pip install 'glow-retrieval[scale]')"
        ) from error
