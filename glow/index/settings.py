"""Tuned settings, stored beside an index's components: fusion of rankings, and weight of a re-ranker."""

from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, model_validator

from glow.artifact import RERANK_WEIGHT_FILE, RERANKER_FOLDER, Manifest
from glow.errors import ConfigError, FormatError
from glow.options import StrictModel

__all__ = [
    "DEFAULT_FUSION", "DEFAULT_RERANK_WEIGHT", "FUSION_FILE", "RRF_K", "Fusion", "FusionWeights", "RerankWeight", "load_fusion", "load_rerank_weight",
    "load_setting",
]  # fmt: skip

FUSION_FILE = "fusion.json"
"""Fusion of hybrid search."""
RRF_K = 60
MAX_K = 10_000
Setting = TypeVar("Setting", bound=StrictModel)


class FusionWeights(StrictModel):
    """Weights of the two retrievers: both finite and >= 0, one of them above 0; only their ratio matters."""

    dense: float = Field(ge=0.0, le=1e6)
    lexical: float = Field(ge=0.0, le=1e6)

    @model_validator(mode="after")
    def _check(self) -> "FusionWeights":
        if self.dense + self.lexical == 0.0:
            raise ValueError("one of the weights must be above 0")
        return self


class Fusion(StrictModel):
    """How to combine two rankings; `fusion.json` of an index.

    Attributes:
        method: `convex` (normalized scores) or `rrf` (reciprocal ranks).
        k: constant of `rrf` that reduces the advantage of the first ranks, 0 to 10,000.
        weights: of the two retrievers, for either method.
    """

    method: Literal["convex", "rrf"] = "convex"
    k: int = Field(default=RRF_K, ge=0, le=MAX_K)
    weights: FusionWeights = FusionWeights(dense=0.55, lexical=0.45)


DEFAULT_FUSION = Fusion()
"""Default if an index has none of its own; chosen in docs/decisions/0041."""


class RerankWeight(StrictModel):
    """How much the re-ranker's score counts beside the first search's; `mixture.json`.

    Attributes:
        share: times its score, in units of the first search's (`score_unit`); 0 leaves the first search's order.
    """

    share: float = Field(default=0.06, ge=0.0, le=1e3)


DEFAULT_RERANK_WEIGHT = RerankWeight()


def load_fusion(folder: Path, manifest: Manifest) -> Fusion:
    """The fusion of a version; raises as `load_setting`."""
    return load_setting(folder, manifest, (FUSION_FILE,), DEFAULT_FUSION, "tune")


def load_rerank_weight(folder: Path, manifest: Manifest) -> RerankWeight:
    """The weight of a version's re-ranker, as trained; raises as `load_setting`."""
    names = (RERANK_WEIGHT_FILE, f"{RERANKER_FOLDER}/{RERANK_WEIGHT_FILE}")
    return load_setting(folder, manifest, names, DEFAULT_RERANK_WEIGHT, "rebuild")


def load_setting(
    folder: Path,
    manifest: Manifest,
    names: tuple[str, ...],
    default: Setting,
    remedy: Literal["tune", "rebuild"],
) -> Setting:
    """A setting of a version.

    Args:
        folder, manifest: of the version.
        names: files that may contain it; the first one in the manifest is read.
        default: if the manifest lists none.
        remedy: advice for a damaged file.

    Raises:
        FormatError: if the file cannot be read.
    """
    name = next((each for each in names if each in manifest.files), None)
    if name is None:
        return default
    try:
        return type(default).load(folder / name)
    except ConfigError as error:
        advice = "tune the index again" if remedy == "tune" else "rebuild the index"
        raise FormatError(f"index {manifest.name}: {error}; {advice}") from error
