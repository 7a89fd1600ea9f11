"""Settings of a version that `glow tune` and `glow calibrate` write: fusion, weight of the re-ranker, calibration."""

from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, model_validator

from glow.artifact import CALIBRATION_FILE, RERANK_WEIGHT_FILE, RERANKER_FOLDER, Manifest
from glow.errors import ConfigError, FormatError
from glow.index.models import MODEL_FOLDER
from glow.options import StrictModel

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
    """How to combine two rankings; `fusion.json` of an index."""

    method: Literal["convex", "rrf"] = "convex"  # `convex` (normalized scores) or `rrf` (reciprocal ranks)
    # Constant of `rrf` that reduces the advantage of the first ranks, 0 to 10,000
    k: int = Field(default=RRF_K, ge=0, le=MAX_K)
    # Of the two retrievers, for either method
    weights: FusionWeights = FusionWeights(dense=0.55, lexical=0.45)


DEFAULT_FUSION = Fusion()
"""Default if an index has none of its own; chosen in docs/decisions/0041."""


class RerankWeight(StrictModel):
    """How much the re-ranker's score counts beside the first search's; `mixture.json`."""

    # Times its score, in units of the first search's (`score_unit`); 0 leaves the first search's order
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
    names: tuple[str, ...],  # files that may contain it; the first one in the manifest is read
    default: Setting,
    remedy: Literal["tune", "rebuild"],
) -> Setting:
    """A setting of a version."""
    name = next((each for each in names if each in manifest.files), None)
    if name is None:
        return default
    try:
        return type(default).load(folder / name)
    except ConfigError as error:
        advice = "tune the index again" if remedy == "tune" else "rebuild the index"
        raise FormatError(f"index {manifest.name}: {error}; {advice}") from error


class Calibration(StrictModel):
    """Turns the evidence of a fusion into probabilities; `glow.search.calibration` uses it.

    The odds of a hit grow with its evidence for any of these numbers, so hits never change places.
    """

    sharpness: float = Field(gt=0, le=1e4)  # factor of the evidence in a softmax over hits, > 0
    standing: float = Field(ge=0, le=1e3)  # weight of a hit's odds against the nearest documents, >= 0
    evidence: float = Field(ge=0, le=1e4)  # weight of a hit's own evidence, >= 0
    openness: float = Field(ge=-1e3, le=1e3)  # weight of the uncertainty of the dense ranking
    constant: float = Field(ge=-1e4, le=1e4)  # term of the log odds

    @model_validator(mode="after")
    def _check(self) -> "Calibration":
        if self.standing + self.evidence == 0:
            raise ValueError("standing or evidence must be above 0, or all hits would have one probability")
        return self


class CalibratedFusion(StrictModel):
    """`calibration.json`: the calibration of one fusion."""

    format: Literal[1] = 1  # format version of the file
    # Of the calibrated fusion; other weights give evidence on another scale
    weights: FusionWeights | None = None
    calibration: Calibration | None = None  # None: not calibrated

    def of(self, fusion: Fusion) -> Calibration | None:
        """The calibration for a ranking; None: its scores stay evidence."""
        return self.calibration if fusion.method == "convex" and fusion.weights == self.weights else None


UNCALIBRATED = CalibratedFusion()


def load_calibration(folder: Path, manifest: Manifest) -> CalibratedFusion:
    """A version's own calibration, as tuned, or its model's."""
    names = (CALIBRATION_FILE, f"{MODEL_FOLDER}/{CALIBRATION_FILE}")
    return load_setting(folder, manifest, names, UNCALIBRATED, "tune")
