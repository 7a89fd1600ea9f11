"""Which runner a build asked for."""

import importlib

from glow.errors import ConfigError, DependencyError
from index_builder.encode import EncodeJob
from index_builder.options import BuildOptions
from index_builder.runner import Runner, ThreadRunner
from index_builder.runner_process import ProcessRunner

__all__ = ["make_runner", "require_runner"]


def make_runner(options: BuildOptions, job: EncodeJob) -> Runner:
    """The runner of a build, not started yet."""
    if options.runner == "ray":
        from index_builder.runner_ray import RayRunner

        return RayRunner(job, options.workers, options.ray_address)
    return ThreadRunner(job) if options.workers == 1 else ProcessRunner(job, options.workers)


def require_runner(options: BuildOptions) -> None:
    """Refuses a runner that is not there, before any work.

    Raises:
        DependencyError: Ray was asked for and is not installed.
        ConfigError: the address of a Ray cluster without Ray.
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
