"""Selects the runner of a build."""

import importlib
from collections.abc import Callable

from glow.errors import ConfigError, DependencyError
from glow.index import ImportRows, RangeTask
from glow_index_builder.encoding.encode import ShardJob
from glow_index_builder.encoding.process_runner import ProcessRunner
from glow_index_builder.encoding.ray_runner import RayRunner
from glow_index_builder.encoding.ray_spread import RayImport
from glow_index_builder.encoding.runner import Runner, ThreadRunner
from glow_index_builder.options import CommonOptions

__all__ = ["make_runner", "make_spread", "require_runner"]

MAX_KILLS = 2


def make_runner(options: CommonOptions, job: ShardJob, kills: int) -> Runner:
    """Makes the runner of a build, not started yet.

    Args:
        options: of the build.
        job: the encoding job.
        kills: runs of this build that were killed while they encoded in their own process. After two, a document
            may be to blame, and it can be found only from another process.
    """
    if options.runner == "ray":
        return RayRunner(job, options.workers, options.ray_address)
    if options.workers == 1 and kills < MAX_KILLS:
        return ThreadRunner(job)
    return ProcessRunner(job, options.workers)


def make_spread(options: CommonOptions) -> Callable[[RangeTask], ImportRows] | None:
    """A function that gives a row task to Ray's workers; None if this process runs it."""
    if options.runner != "ray":
        return None
    return lambda task: RayImport(task, options.workers, options.ray_address)


def require_runner(options: CommonOptions) -> None:
    """Refuses an unavailable runner before any work.

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
