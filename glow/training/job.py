"""One run of any kind, from its configuration and files to a checkpoint."""

from collections.abc import Callable, Mapping
from typing import Any

from glow.training.config import TrainConfig
from glow.training.given import Given
from glow.training.impacts import ImpactsConfig, impacts_recipe
from glow.training.pretraining import PretrainConfig, pretraining_recipe
from glow.training.rerank import RerankConfig, reranker_recipe
from glow.training.run import Place, Processes, Recipe, RunConfig, Tell, describe_run, run
from glow.training.towers import towers_recipe

__all__ = ["RECIPES", "train"]

Say = Callable[[str], None]
RECIPES: Mapping[type[RunConfig], Callable[[Any, Given, Say], Recipe[Any]]] = {
    TrainConfig: towers_recipe,
    RerankConfig: reranker_recipe,
    ImpactsConfig: impacts_recipe,
    PretrainConfig: pretraining_recipe,
}


def train(
    config: RunConfig,
    given: Given,
    say: Say = lambda stage: None,
    tell: Tell = lambda progress: None,
    *,
    dry: bool = False,
) -> dict[str, Any]:
    """Trains a model and writes a checkpoint; the same call goes on where a stopped one was.

    Args:
        config: the run; its class says what is trained.
        given: data, initial weights, output.
        say: told what is being done.
        tell: told of every step.
        dry: reads everything, and makes what is kept for the run (a teacher's vectors, states, text); takes no step, and writes no checkpoint.

    Returns:
        The training report, as it is stored with the checkpoint; of a run that was finished before, the one that is there.

    Raises:
        GlowError: if data or configuration are not usable.
    """
    given.check_folders()
    recipe = RECIPES[type(config)](config, given, say)
    if dry:
        return describe_run(recipe, Processes(config.optimizer.precision, given.device).count)
    say("training")
    return run(recipe, Place(given.run_folder, given.out, given.device), tell)
