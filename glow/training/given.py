"""The inputs of a run besides its configuration: files, directories and a device."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glow.artifact import read_manifest
from glow.errors import ConfigError, GlowError
from glow.training.run import TrainingDevice

__all__ = ["Given"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Files and directories; each kind of run reads some of them and refuses the others.

    Attributes:
        out: the checkpoint directory to write; state and metrics go to `OUT.run/` beside it.
        init: initial weights and vocabulary: a BERT directory, a checkpoint, or a model; for learned impacts, the model
            to extend.
        data: data directories.
        split: split of their relevance judgments.
        corpora: text for pre-training: JSON Lines of documents (`.jsonl`, `.ndjson`), or plain text.
        candidates: TREC runs of first-stage retrieval, one for each data directory, in the same order.
        teacher: the teacher: a BERT or sentence-transformers directory, a model or a checkpoint.
        negatives: files of mined hard negatives; each names the directory it was mined from.
        dev: development data: data directories with a split `dev`, or corpora for pre-training.
        dev_candidates: TREC runs over them, in the same order.
        synthesize: JSON Lines of documents for synthetic training pairs, which go to the run directory.
        synthesis_model: model whose search filters those pairs; None: the default model.
        cache: directory of teachers' vectors; None: `teacher.vectors` beside `out`.
        minutes: training time; 0: the configured number of steps.
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
        """Directory of the run's state."""
        return self.out.with_name(self.out.name + ".run")

    @property
    def vectors_folder(self) -> Path:
        """Directory of teachers' vectors, shared by neighboring runs."""
        return self.cache or self.out.parent / "teacher.vectors"

    def check_folders(self) -> None:
        """Raises ConfigError if `init` is not a directory, or `out` exists and is not a checkpoint."""
        if not self.init.is_dir():
            raise ConfigError(
                f"--init {self.init} is not a directory; give a BERT directory, a checkpoint or a model"
            )
        if not self.out.exists() or (self.out.is_dir() and not any(self.out.iterdir())):
            return
        try:
            read_manifest(self.out, "checkpoint")
        except GlowError as error:
            raise ConfigError(
                f"--out {self.out} exists and is not a checkpoint; choose another directory"
            ) from error

    def refuse(self, what: str, *names: str) -> None:
        """Raises ConfigError for given inputs that a kind does not read."""
        if found := [name for name in names if getattr(self, name)]:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in found)
            raise ConfigError(f"{what} does not read {flags}; leave it out")

    def require_candidates(self, what: str) -> None:
        """Raises ConfigError unless there is one run of candidates for each directory."""
        pairs = (("data", "candidates"), ("dev", "dev_candidates"))
        for folders, runs in pairs:
            found, expected = len(getattr(self, runs)), len(getattr(self, folders))
            if found != expected or (folders == "data" and not expected):
                flags = f"--{folders} and {found} --{runs.replace('_', '-')}"
                raise ConfigError(
                    f"{what} from first-stage hits: found {expected} {flags}, "
                    "expected one TREC run for each directory (glow evaluate --run)"
                )
