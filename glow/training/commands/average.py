"""`glow average`: averages the weights of two checkpoints, with a weight for each tower.

The average of a general encoder and one fine-tuned from it keeps most of the abilities of both (Wortsman et al. 2022,
https://arxiv.org/abs/2203.05482; for retrieval Xiao et al. 2023, LM-Cocktail, https://arxiv.org/abs/2311.13534). Weights
of 0 and 1 combine two towers that were trained separately.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from glow.commands import command, option
from glow.errors import MismatchError
from glow.nn import TwoTowers
from glow.options import StrictModel
from glow.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

__all__ = ["AverageOptions", "average", "average_command"]


class AverageOptions(StrictModel):
    """Which checkpoints, and their weights."""

    first: Path = option(..., "Checkpoint directory.", metavar="DIR")
    second: Path = option(..., "Checkpoint directory of the same towers.", metavar="DIR")
    out: Path = option(..., "Checkpoint directory to write.", metavar="DIR")
    query: float = option(0.5, "Weight of the second checkpoint in the query tower.", ge=0.0, le=1.0)
    document: float = option(0.5, "Weight of the second checkpoint in the document tower.", ge=0.0, le=1.0)


@command(AverageOptions)
def average_command(options: AverageOptions) -> None:
    """Averages the weights of two checkpoints, tower by tower."""
    report = average(options.first, options.second, options.query, options.document, options.out)
    sys.stdout.write(json.dumps({"averaged": report["averaged"]}, indent=2) + "\n")


def average(first: Path, second: Path, query: float, document: float, out: Path) -> dict[str, Any]:
    """Writes a checkpoint of averaged towers; vocabulary, term statistics and weighting are the second's.

    Args:
        first, second: checkpoints of towers of one shape over one vocabulary and schema.
        query, document: the second's weight in each tower, in [0, 1]; the shared token embeddings use their mean.
        out: checkpoint directory to write.

    Returns:
        The new checkpoint's report.

    Raises:
        ArtifactError: if a checkpoint is missing or damaged.
        MismatchError: if the two do not match.
    """
    parts = [load_checkpoint(folder) for folder in (first, second)]
    _require_alike(*parts)
    towers = TwoTowers.unset(parts[1].towers.config, parts[1].preprocessor.schema)
    first_weights, second_weights = (part.towers.state_dict() for part in parts)
    shares = {"query": query, "document": document}
    towers.load_state_dict(_mixed(first_weights, second_weights, shares))
    report = {
        "averaged": [
            {"checkpoint": part.manifest.name, "query": of_query, "document": of_document}
            for part, (of_query, of_document) in zip(
                parts, ((1 - query, 1 - document), (query, document)), strict=True
            )
        ],
        "training": [dict(part.report) for part in parts],
    }
    save_checkpoint(out, towers, parts[1].preprocessor, report)
    return report


def _require_alike(first: Checkpoint, second: Checkpoint) -> None:
    vocabularies = [part.preprocessor.pieces.vocabulary.read_bytes() for part in (first, second)]
    for what, one, other in (
        ("shape", first.towers.config, second.towers.config),
        ("schema", first.preprocessor.schema, second.preprocessor.schema),
        ("weighting", first.preprocessor.weighting, second.preprocessor.weighting),
        ("vocabulary", *vocabularies),
    ):
        if one != other:
            raise MismatchError(
                f"{first.manifest.name} and {second.manifest.name} differ in {what}; only checkpoints of the same towers "
                "can be averaged"
            )


def _mixed(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor], shares: Mapping[str, float]
) -> dict[str, Tensor]:
    def share(name: str) -> float:
        side = name.partition(".")[0]
        words = name.endswith("words.weight")
        return 0.5 * (shares["query"] + shares["document"]) if words else shares[side]

    return {name: tensor.lerp(second[name], share(name)) for name, tensor in first.items()}
