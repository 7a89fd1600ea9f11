"""What each process of tests/training/test_processes.py runs: `process_script.py CONFIG DATA BERT OUT`.

Processes start from different parameters on purpose. Each leaves its averaged gradients, its batches, and a digest
of its parameters after the run, beside those that the others say they have.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from glow.nn import TwoTowers, bert_config
from glow.text import Preprocessor, WordPieces
from glow.training.config import TrainConfig
from glow.training.data.dataset import PairBatches, count_terms, read_collection
from glow.training.loop import Trainer
from glow.training.run import average_gradients, share_parameters
from glow.training.watch import Watch


def make_trainer(config: TrainConfig, data: Path, bert: Path, run: Path, seed: int) -> Trainer:
    """A trainer whose towers are drawn by `seed`."""
    schema = config.field_schema
    pieces = WordPieces(bert / "vocab.txt", config.weighting.unit)
    collection = read_collection(data, "train", schema)
    preprocessor = Preprocessor(pieces, schema, config.weighting, count_terms([collection], schema, pieces))
    batches = PairBatches([collection], preprocessor, config.optimizer.batch_size, config.seed)
    watch = Watch([collection], preprocessor, config.watch, config.seed)
    torch.manual_seed(seed)
    towers = TwoTowers(bert_config(bert, **config.towers.changes), schema)
    return Trainer(config, towers, batches, run, watch=watch)


def digest(trainer: Trainer) -> int:
    """A number of all parameters, bit by bit."""
    found = hashlib.sha256()
    for parameter in trainer.model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return int.from_bytes(found.digest()[:7], "big")


def save_gradients(trainer: Trainer, out: Path, rank: int) -> None:
    """Writes the parameters that a run starts from, and the averaged gradients of its first step."""
    share_parameters(trainer.model)
    parameters = dict(trainer.model.named_parameters())
    save_file({name: p.detach().clone() for name, p in parameters.items()}, out / f"start{rank}.safetensors")
    trainer._backward(*next(iter(trainer._batches(0))))
    average_gradients(trainer.accelerator, trainer.model.parameters())
    gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    save_file(gradients, out / f"gradients{rank}.safetensors")


def main() -> None:
    """Runs the whole training, then takes one gradient."""
    config = TrainConfig.load_toml(Path(sys.argv[1]))
    data, bert, out = (Path(name) for name in sys.argv[2:5])
    rank = make_trainer(config, data, bert, out / "unused", 0).accelerator.process_index
    trainer = make_trainer(config, data, bert, out / "run", rank)
    before = digest(trainer)
    losses = trainer.run()
    everyone = trainer.accelerator.gather(torch.tensor([digest(trainer)])).tolist()
    batches = [batch.queries.tolist() for _, batch in trainer._batches(0)]
    save_gradients(make_trainer(config, data, bert, out / "unused", rank), out, rank)
    report = {"before": before, "digests": everyone, "steps": len(losses), "batches": batches}
    (out / f"report{rank}.json").write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main()
