"""What a run of any kind is given beside its configuration: files, folders and a device."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glow.artifact import read_manifest
from glow.errors import ConfigError, GlowError
from glow.training.run import TrainingDevice

__all__ = ["Given"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Files and folders; a kind reads some of them and refuses the others.

    Attributes:
        out: the checkpoint folder to write; state, metrics and pictures go to `OUT.run/` beside it.
        init: initial weights and vocabulary: a BERT-layout folder, a checkpoint, or a model; of learned impacts the model whose
            towers they are for.
        data: data folders.
        split: of their judgements.
        corpora: of pre-training: JSON lines of documents (`.jsonl`, `.ndjson`), or plain text.
        candidates: TREC runs of a first search, one for each data folder, in the same order.
        teacher: what is distilled: a BERT-layout or sentence-transformers folder, a model, a checkpoint, or the vectors that
            `glow teach` made.
        negatives: files of mined hard negatives; each names the folder it was mined from.
        dev: what is watched: data folders with a split `dev`; of pre-training corpora.
        dev_candidates: TREC runs over them, in the same order.
        synthesize: JSON lines of documents to make training pairs from, under the run folder.
        synthesis_model: model whose search filters those pairs; None: the default model.
        cache: folder of teachers' vectors; None: `teacher.vectors` beside `out`.
        minutes: how long training may take; 0: as many steps as the configuration says.
        device: `auto`, `cpu` or `cuda`.
    """

    out: Path
    init: Path
    data: Sequence[Path] = ()
    split: str = "train"
    corpora: Sequence[Path] = ()
    candidates: Sequence[Path] = ()
    teacher: Path | None = None
    negatives: Sequence[Path] = ()
    dev: Sequence[Path] = ()
    dev_candidates: Sequence[Path] = ()
    synthesize: Sequence[Path] = ()
    synthesis_model: Path | None = None
    cache: Path | None = None
    minutes: float = 0.0
    device: TrainingDevice = "auto"

    @property
    def run_folder(self) -> Path:
        """Where the run keeps its state."""
        return self.out.with_name(self.out.name + ".run")

    @property
    def vectors_folder(self) -> Path:
        """Where teachers' vectors are kept, for all runs beside each other."""
        return self.cache or self.out.parent / "teacher.vectors"

    def check_folders(self) -> None:
        """Raises ConfigError if `init` is no folder, or `out` holds something that is no checkpoint."""
        if not self.init.is_dir():
            raise ConfigError(
                f"--init {self.init} is no folder; give a BERT-layout folder, a checkpoint or a model"
            )
        if not self.out.exists() or (self.out.is_dir() and not any(self.out.iterdir())):
            return
        try:
            read_manifest(self.out, "checkpoint")
        except GlowError as error:
            raise ConfigError(
                f"--out {self.out} is there and no checkpoint; choose another folder"
            ) from error

    def refuse(self, what: str, *names: str) -> None:
        """Raises ConfigError if something is given that a kind does not read."""
        if found := [name for name in names if getattr(self, name)]:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in found)
            raise ConfigError(f"{what} does not read {flags}; leave it out")

    def require_candidates(self, what: str) -> None:
        """Raises ConfigError if there is not one run of candidates for each folder."""
        pairs = (("data", "candidates"), ("dev", "dev_candidates"))
        for folders, runs in pairs:
            found, expected = len(getattr(self, runs)), len(getattr(self, folders))
            if found != expected or (folders == "data" and not expected):
                flags = f"--{folders} and {found} --{runs.replace('_', '-')}"
                raise ConfigError(
                    f"{what} from what a first search found: found {expected} {flags}, "
                    "expected one TREC run for each folder (glow evaluate --run)"
                )
