"""Averages two checkpoints of towers, tower by tower.

The average of a general encoder and one fine-tuned from it keeps most of what both know (Wortsman et al. 2022,
https://arxiv.org/abs/2203.05482; for retrieval Xiao et al. 2023, https://arxiv.org/abs/2311.13534). Weights of 0 and 1
join two towers that were trained apart.
"""

from pathlib import Path
from typing import Any

from glow.errors import MismatchError
from glow.nn import TwoTowers
from glow.training import load_checkpoint, save_checkpoint


def average(first: Path, second: Path, query: float, document: float, out: Path) -> dict[str, Any]:
    """Writes a checkpoint of averaged towers; `query` and `document` are the second's weights, in [0, 1].

    The shared token embeddings use the mean of both weights. Everything but the towers is the second's.
    """
    parts = [load_checkpoint(folder) for folder in (first, second)]
    vocabularies = [part.preprocessor.pieces.vocabulary.read_bytes() for part in parts]
    one, other = (
        {
            "shape": part.towers.config,
            "schema": part.preprocessor.schema,
            "weighting": part.preprocessor.weighting,
            "vocabulary": vocabulary,
        }
        for part, vocabulary in zip(parts, vocabularies, strict=True)
    )
    if differences := [name for name in one if one[name] != other[name]]:
        raise MismatchError(f"{first} and {second} differ in {', '.join(differences)}")
    weights = {"query": query, "document": document, "words": 0.5 * (query + document)}
    towers = TwoTowers.unset(parts[1].towers.config, parts[1].preprocessor.schema)
    before, after = (part.towers.state_dict() for part in parts)
    towers.load_state_dict(
        {
            name: tensor.lerp(
                after[name], weights["words" if name.endswith("words.weight") else name.partition(".")[0]]
            )
            for name, tensor in before.items()
        }
    )
    report = {
        "averaged": [
            {"checkpoint": part.manifest.name, "query": of_query, "document": of_document}
            for part, of_query, of_document in zip(
                parts, (1 - query, query), (1 - document, document), strict=True
            )
        ],
        "training": [dict(part.report) for part in parts],
    }
    save_checkpoint(out, towers, parts[1].preprocessor, report)
    return report
