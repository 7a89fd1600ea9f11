"""What turns the evidence of a hybrid search into a probability, as files of a model and of an index keep it."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from glow.artifact import CALIBRATION_FILE, Manifest
from glow.index.models import MODEL_FOLDER
from glow.index.settings import Fusion, FusionWeights, load_setting
from glow.options import StrictModel

__all__ = ["UNCALIBRATED", "Calibration", "Calibrations", "load_calibrations"]


class Calibration(StrictModel):
    """Of one way to add up evidence; `glow.search.calibration` says how it is used.

    The odds of a hit grow with its evidence, whatever the numbers here are, so hits never change places.

    Attributes:
        sharpness: what evidence is times in a softmax over hits, > 0.
        standing: weight of a hit's odds against the first vectors, >= 0.
        evidence: weight of what a hit scores by itself, >= 0.
        openness: weight of how open the vectors leave the question.
        constant: added to the log odds.
        high, none: a first hit of at least `high` is sure; one below `none` says that nothing answers.
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
    """`calibration.json`: for each set of columns that evidence is made of.

    Attributes:
        format: of the file.
        weights: of the fusion that was calibrated; evidence of another is on another scale.
        with_late, without_late: with late interaction, and vectors and words alone; None: not calibrated.
    """

    format: Literal[1] = 1
    weights: FusionWeights | None = None
    with_late: Calibration | None = None
    without_late: Calibration | None = None

    def of(self, fusion: Fusion, *, late: bool) -> Calibration | None:
        """What fits a ranking; None: its scores are evidence and no more.

        Args:
            fusion: how it was fused.
            late: whether late interaction is a part of it.
        """
        if fusion.method != "convex" or fusion.weights != self.weights:
            return None
        return self.with_late if late else self.without_late


UNCALIBRATED = Calibrations()


def load_calibrations(folder: Path, manifest: Manifest) -> Calibrations:
    """A version's own, as tuned, or its model's.

    Raises:
        FormatError: if the file cannot be read.
    """
    names = (CALIBRATION_FILE, f"{MODEL_FOLDER}/{CALIBRATION_FILE}")
    return load_setting(folder, manifest, names, UNCALIBRATED, "tune")
