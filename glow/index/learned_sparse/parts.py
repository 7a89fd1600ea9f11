"""Learned impacts of an index version, opened: what belongs together, or an error that says what does not."""

from pathlib import Path

from pydantic import Field

from glow.artifact import Manifest
from glow.errors import MismatchError
from glow.index.learned_sparse.words import LEARNED_WORDS_FILES, LEARNED_WORDS_FOLDER
from glow.index.postings import IMPACTS_HEADER, LEARNED_FILES, LEARNED_FOLDER, ImpactIndex
from glow.index.settings import load_setting
from glow.options import StrictModel

__all__ = ["LEARNED_WEIGHT_FILE", "LearnedWeight", "open_learned", "open_learned_weight"]

LEARNED_WEIGHT_FILE = "learned.json"


class LearnedWeight(StrictModel):
    """`learned.json` of a version: how much learned impacts count beside BM25's, fitted by `glow tune`.

    Attributes:
        weight: 1 is what the head was trained with; 0 leaves BM25 alone.
    """

    weight: float = Field(default=1.0, ge=0.0, le=100.0)


def open_learned(folder: Path, manifest: Manifest, documents: int) -> ImpactIndex | None:
    """Opens the learned impacts of a version; None where it has none.

    Args:
        folder: of the version.
        manifest: its manifest.
        documents: that they must be of.

    Raises:
        ArtifactError: if a file is missing, damaged, or not for these documents.
    """
    if f"{LEARNED_FOLDER}/{IMPACTS_HEADER}" not in manifest.files:
        return None
    needed = [
        *(f"{LEARNED_FOLDER}/{name}" for name in LEARNED_FILES),
        *(f"{LEARNED_WORDS_FOLDER}/{name}" for name in LEARNED_WORDS_FILES),
    ]
    if missing := [path for path in needed if path not in manifest.files]:
        raise MismatchError(f"index {manifest.name}: its manifest lacks {missing[0]}; rebuild the index")
    learned = ImpactIndex.open(folder / LEARNED_FOLDER)
    if len(learned) != documents or learned.header.kind != "learned":
        raise MismatchError(
            f"index {manifest.name}: {LEARNED_FOLDER}/ holds impacts ({learned.header.kind}) of {len(learned)} documents, "
            f"{documents} stored documents; rebuild the index"
        )
    return learned


def open_learned_weight(folder: Path, manifest: Manifest) -> float:
    """How much the version says that learned impacts count; 1 where it says nothing.

    Raises:
        FormatError: if the file cannot be read.
    """
    return load_setting(folder, manifest, (LEARNED_WEIGHT_FILE,), LearnedWeight(), "tune").weight
