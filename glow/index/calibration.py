"""Calibrations, which turn the evidence of a hybrid search into a probability; files of a model and of an index."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from glow.artifact import CALIBRATION_FILE, Manifest
from glow.index.models import MODEL_FOLDER
from glow.index.settings import Fusion, FusionWeights, load_setting
from glow.options import StrictModel

__all__ = ["UNCALIBRATED", "Calibration", "Calibrations", "load_calibrations"]


class Calibration(StrictModel):
    """Calibration for one set of score columns; `glow.search.calibration` uses it.

    The odds of a hit grow with its evidence for any of these numbers, so hits never change places.

    Attributes:
        sharpness: factor of the evidence in a softmax over hits, > 0.
        standing: weight of a hit's odds against the nearest documents, >= 0.
        evidence: weight of a hit's own evidence, >= 0.
        openness: weight of the uncertainty of the dense ranking.
        constant: term of the log odds.
        high, none: a first hit of at least `high` has high confidence; below `none`, no hit answers the query.
    """

    sharpness: float = Field(gt=0, le=1e4)
    standing: float = Field(ge=0, le=1e3)
    evidence: float = Field(ge=0, le=1e4)
    openness: float = Field(ge=-1e3, le=1e3)
    constant: float = Field(ge=-1e4, le=1e4)
    high: float = Field(ge=0, le=1)
    none: float = Field(ge=0, le=1)

    @model_validator(mode="after")
    def _check(self) -> "Calibration":
        if self.standing + self.evidence == 0:
            raise ValueError("standing or evidence must be above 0, or all hits would have one probability")
        if self.none > self.high:
            raise ValueError(f"none ({self.none}) must not be above high ({self.high})")
        return self


class Calibrations(StrictModel):
    """`calibration.json`: one calibration per set of score columns.

    Attributes:
        format: format version of the file.
        weights: of the calibrated fusion; other weights give evidence on another scale.
        with_late, without_late: with late interaction, and with only vectors and terms; None: not calibrated.
    """

    format: Literal[1] = 1
    weights: FusionWeights | None = None
    with_late: Calibration | None = None
    without_late: Calibration | None = None

    def of(self, fusion: Fusion, *, late: bool) -> Calibration | None:
        """The calibration for a ranking; None: its scores stay evidence.

        Args:
            fusion: how it was fused.
            late: whether it includes late interaction.
        """
        if fusion.method != "convex" or fusion.weights != self.weights:
            return None
        return self.with_late if late else self.without_late


UNCALIBRATED = Calibrations()


def load_calibrations(folder: Path, manifest: Manifest) -> Calibrations:
    """A version's own calibrations, as tuned, or its model's.

    Raises:
        FormatError: if the file cannot be read.
    """
    names = (CALIBRATION_FILE, f"{MODEL_FOLDER}/{CALIBRATION_FILE}")
    return load_setting(folder, manifest, names, UNCALIBRATED, "tune")
