"""What each process of tests/training/test_processes.py runs: `process_script.py OUT DATA BERT`.

Processes start from different parameters on purpose. Each leaves its averaged gradients, its batches, and digests of its
parameters before and after the run.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from glow.cli import app
from glow.nn import TwoTowers, bert_config
from glow.options import read_toml
from glow.text import Preprocessor, WordPieces
from glow.training.data import count_terms, read_collection
from glow.training.run import Processes, parameters_hash
from glow.training.run.loop import _gradients, _moment
from glow.training.towers import TowerLoss, TrainConfig, Watch, pair_batches
from tests.training.conftest import Trial


def make_trial(config: TrainConfig, data: Path, bert: Path, run: Path, seed: int) -> Trial:
    """A run of towers that are drawn by `seed`."""
    schema = config.field_schema
    pieces = WordPieces(bert / "vocab.txt", config.weighting.unit)
    collection = read_collection(data, "train", schema)
    preprocessor = Preprocessor(pieces, schema, config.weighting, count_terms([collection], schema, pieces))
    batches = pair_batches(config, [collection], preprocessor)
    torch.manual_seed(seed)
    towers = TwoTowers(bert_config(bert, **config.towers.changes), schema)

    def watched(loss: TowerLoss) -> Watch:
        return Watch([collection], preprocessor, config.watch, config.seed, loss)

    return Trial(config, batches, towers, run, watched)


def save_gradients(trial: Trial, own: Processes, out: Path) -> None:
    """Writes the parameters that a run starts from, and the averaged gradients of its first step."""
    own.share(trial.loss)
    parameters = dict(trial.loss.named_parameters())
    start = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    save_file(start, out / f"start{own.index}.safetensors")
    _gradients(trial.recipe, own, _moment(trial.recipe, own, 0, trial.batches.steps(own.count)))
    own.average(trial.loss)
    gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    save_file(gradients, out / f"gradients{own.index}.safetensors")


def main() -> None:
    """Runs the commands of calls.json, then a whole training, then takes one gradient."""
    out, data, bert = (Path(name) for name in sys.argv[1:4])
    for call in json.loads((out / "calls.json").read_bytes()):
        done = CliRunner().invoke(app, call)
        assert done.exit_code == 0, done.output
    config, own = TrainConfig.model_validate(read_toml(out / "two.toml")), Processes("cpu")
    trial = make_trial(config, data, bert, out / "run", own.index)
    report = {"before": parameters_hash(trial.loss), "steps": len(trial.run())}
    report["after"] = parameters_hash(trial.loss)
    steps = range(trial.batches.steps(own.count))
    report["batches"] = [trial.batches.batch(step, own.index, own.count).queries.tolist() for step in steps]
    save_gradients(make_trial(config, data, bert, out / "unused", own.index), own, out)
    (out / f"report{own.index}.json").write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main()
