"""One job of pre-training, from corpora to checkpoint: `glow pretrain`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glow.errors import ConfigError
from glow.text import WordPieces
from glow.training.checkpoint import known_report
from glow.training.data import one_at_a_time
from glow.training.fingerprint import parameters_hash, parts_hash
from glow.training.pretraining.checkpoint import load_pretrained, save_pretrained
from glow.training.pretraining.config import PretrainConfig
from glow.training.pretraining.initial import initial_pretrainer
from glow.training.pretraining.samples import Samples
from glow.training.pretraining.stream import PieceStream, make_stream
from glow.training.pretraining.trainer import PretrainProgress, PretrainTrainer
from glow.training.run import TrainingDevice
from glow.training.run_folder import read_metrics

__all__ = ["PretrainInputs", "pretrain"]


@dataclass(frozen=True, slots=True)
class PretrainInputs:
    """What a run reads and where it writes.

    Attributes:
        corpora: JSON lines of documents (`.jsonl`, `.ndjson`), or plain text.
        out: the checkpoint folder to write; text, state and metrics go to `OUT.run/` beside it.
        init: initial weights and vocabulary: a BERT-layout folder, a checkpoint, or a model.
        device: `auto`, `cpu` or `cuda`.
        minutes: how long training may take; 0: as many steps as the configuration says.
    """

    corpora: Sequence[Path]
    out: Path
    init: Path
    device: TrainingDevice = "auto"
    minutes: float = 0.0


def pretrain(
    config: PretrainConfig,
    inputs: PretrainInputs,
    on_stage: Callable[[str], None] = lambda stage: None,
    on_progress: Callable[[PretrainProgress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Pre-trains an encoder on text and writes a checkpoint; the same call goes on where a stopped one was.

    Args:
        config: the run.
        inputs: text, initial weights, output.
        on_stage: told what is being done.
        on_progress: told of every step.

    Returns:
        The training report, as it is stored with the checkpoint; of a run that was finished before, the one that is there.

    Raises:
        ConfigError: if there is no text, or configuration and initial weights do not fit.
        GlowError: if a corpus cannot be used.
    """
    start = time.monotonic()
    if not inputs.corpora:
        raise ConfigError("there is nothing to read; give --corpus")
    run_folder = inputs.out.with_name(inputs.out.name + ".run")
    pieces = WordPieces(inputs.init / "vocab.txt")
    model = initial_pretrainer(config, inputs.init, pieces.cls_id)
    stream = _read_text(config, inputs.corpora, pieces, run_folder, on_stage)
    fingerprint = parts_hash([config.model_dump_json(), stream.digest, parameters_hash(model)])
    samples = Samples(config, stream, model.config, pieces)
    on_stage("training")
    trainer = PretrainTrainer(
        config, model, samples, run_folder, fingerprint, inputs.device, inputs.minutes, on_progress
    )
    losses = trainer.run()
    if not losses and (known := known_report(load_pretrained, inputs.out, fingerprint)) is not None:
        return known
    # A run that was stopped between its last step and its checkpoint has no step left; it kept one loss in ten.
    recent = losses[-50:] or [row["loss"] for row in read_metrics(run_folder)[-5:]]
    report = {
        "config": config.model_dump(mode="json"),
        "corpora": [path.name for path in inputs.corpora],
        "pieces": len(stream),
        "steps": trainer.position.step,
        "passes": round(trainer.position.step * config.samples / samples.per_pass, 3),
        "processes": trainer.accelerator.num_processes,
        "final_loss": sum(recent) / max(len(recent), 1),
        "parameters": sum(parameter.numel() for parameter in model.encoder.parameters()),
        "fingerprint": fingerprint,
        "seconds": round(time.monotonic() - start, 1),
    }
    if trainer.accelerator.is_main_process:
        save_pretrained(inputs.out, model.to(torch.device("cpu")), pieces, report)
    return report


def _read_text(
    config: PretrainConfig,
    corpora: Sequence[Path],
    pieces: WordPieces,
    run_folder: Path,
    on_stage: Callable[[str], None],
) -> PieceStream:
    """The corpora as one stream, which holds a sample at least; one process writes it, the others find it."""
    wanted = config.pretraining
    least = wanted.length * (wanted.sequences if wanted.kind == "cross-thought" else 1)
    on_stage("reading text")
    with one_at_a_time(run_folder / "text.lock"):
        return make_stream(
            corpora, pieces, run_folder, least, lambda texts: on_stage(f"reading text: {texts:,}")
        )
