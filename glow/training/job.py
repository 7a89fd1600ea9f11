"""Runs one training of any kind, from its configuration and files to a checkpoint."""

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
    """Trains a model and writes a checkpoint; the same call resumes a stopped one.

    Args:
        config: the run's configuration; its class decides the kind.
        given: data, initial weights and output.
        say: called with the current task.
        tell: called with the progress after every step.
        dry: reads all inputs and prepares files of the run (teacher vectors, embeddings, text), without training.

    Returns:
        The training report in the checkpoint; for a finished run, the existing one.

    Raises:
        GlowError: if data or configuration are not usable.
    """
    given.check_folders()
    recipe = RECIPES[type(config)](config, given, say)
    if dry:
        return describe_run(recipe, Processes(config.optimizer.precision, given.device).count)
    say("training")
    return run(recipe, Place(given.run_folder, given.out, given.device), tell)
