"""A configuration file as one run, or as stages that each start from the one before, from files to a checkpoint."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from glow.errors import ConfigError
from glow.options import describe, merged, read_toml
from glow.training.config import Given, TrainConfig
from glow.training.impacts import ImpactsConfig, impacts_recipe
from glow.training.pretraining import pretraining_recipe
from glow.training.pretraining_text import PretrainConfig
from glow.training.rerank import RerankConfig, reranker_recipe
from glow.training.run import Place, Processes, Recipe, RunConfig, Tell, describe_run, run
from glow.training.towers import towers_recipe

KINDS: Mapping[str, type[RunConfig]] = {
    "towers": TrainConfig,
    "reranker": RerankConfig,
    "impacts": ImpactsConfig,
    "pretraining": PretrainConfig,
}
TABLES = {"cross": "reranker", "impacts": "impacts", "pretraining": "pretraining"}
"""Tables that decide the kind of a file without `kind`."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One run of a file."""

    config: RunConfig  # configuration of the run; its name is the stage's
    before: str = ""  # name of the stage that it starts from, "" for the first
    is_last: bool = True  # whether its checkpoint is the final one

    def given(self, given: Given, *, has_init: bool) -> Given:
        """The stage's inputs: its own checkpoint directory, and the previous stage's weights unless others are given."""
        init = given.init if has_init or not self.before else stage_folder(given.out, self.before)
        return replace(
            given,
            cache=given.vectors_folder,
            init=init,
            out=given.out if self.is_last else stage_folder(given.out, self.config.name),
        )


def stage_folder(out: Path, name: str) -> Path:
    """The checkpoint directory of a stage before the last."""
    return out.with_name(f"{out.name}.stages") / name


def read_stages(path: Path, only: str = "", seed: int | None = None, steps: int | None = None) -> list[Stage]:
    """Reads a file of `configs/`.

    `[[stage]]` tables have a name, and the options that differ from those above them.
    """
    tables = read_toml(path)
    kind = tables.pop("kind", None) or next((TABLES[name] for name in TABLES if name in tables), "towers")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(f"{path} is not valid: kind: expected one of {', '.join(KINDS)}, found {kind!r}")
    changes = tables.pop("stage", None)
    if changes is not None and not (
        isinstance(changes, list) and all(isinstance(each, dict) for each in changes)
    ):
        raise ConfigError(f"{path} is not valid: stage: expected tables [[stage]], found {changes!r:.80}")
    parts = [merged(tables, each) for each in changes] if changes else [tables]
    configs, faults = [], []
    for number, part in enumerate(parts):
        try:
            configs.append(KINDS[kind].model_validate(_with(part, kind, seed, steps)))
        except ValidationError as error:
            where = f"stage {part.get('name', number + 1)}: " if len(parts) > 1 else ""
            faults.append(f"{where}{describe(error)}")
    if faults:
        raise ConfigError(f"{path} is not valid: {'; '.join(faults)}")
    names = [config.name for config in configs]
    if changes:
        _check_names(path, names)
    stages = [
        Stage(config, names[number - 1] if number else "", number + 1 == len(configs))
        for number, config in enumerate(configs)
    ]
    if only and only not in names:
        raise ConfigError(f"{path} has no stage {only!r}, found {', '.join(names)}")
    if only:
        return [Stage(each.config) for each in stages if each.config.name == only]
    found = {config.optimizer.precision for config in configs}
    # Accelerate keeps the first stage's loss scale setting for the whole process.
    if "fp16" in found and len(found) > 1:
        raise ConfigError(
            f"{path} mixes precision 'fp16' with {', '.join(sorted(found - {'fp16'}))}; run its stages one by one with --stage"
        )
    return stages


def _check_names(path: Path, names: Sequence[str]) -> None:
    """Names of stages become directories, so they must be distinct and not contain paths."""
    if len(set(names)) < len(names):
        raise ConfigError(f"{path} is not valid: two stages have one name ({', '.join(names)})")
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or name in (".", ".."):
            raise ConfigError(
                f"{path} is not valid: a stage is named {name!r}; expected letters, digits, '.', '_' and '-' (not '.' or '..')"
            )


def _with(tables: Any, kind: str, seed: int | None, steps: int | None) -> Any:
    """Sets a seed and a limit of steps in the tables, if given."""
    changes: dict[str, Any] = {} if seed is None else {"seed": seed}
    if steps is not None:
        name = "steps" if kind in ("impacts", "pretraining") else "max_steps"
        changes["optimizer"] = {name: steps}
    return merged(tables, changes)


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
    """Trains a model and writes a checkpoint; the same call resumes a stopped one."""
    given.check_folders()
    recipe = RECIPES[type(config)](config, given, say)
    if dry:
        return describe_run(recipe, Processes(config.optimizer.precision, given.device).count)
    say("training")
    return run(recipe, Place(given.run_folder, given.out, given.device), tell)
