"""`python -m research.gpu`: `pack` makes the folder, `run` does everything in it that is not done yet.

    python -m research.gpu pack --data $DATA/tldr --data $DATA/medquad --out gpu.zip      # here
    unzip -q gpu.zip -d gpu && cd gpu && python -m research.gpu run --minutes 9           # there, until it says "all done"

Results are lines of `results.jsonl` and `grid.jsonl` in the folder; a call that is stopped or out of time leaves what is done, and the
next one goes on. Beside torch and numpy nothing has to be installed there.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

RESULTS, GRID = "results.jsonl", "grid.jsonl"
TOWERS = {"3 layers × 384": (3, 384, 12), "6 layers × 384": (6, 384, 12), "3 layers × 768": (3, 768, 12)}
BATCH = 1024
Stage = tuple[str, Callable[[], dict[str, Any]]]


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m research.gpu", description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="make the zip file")
    packing.add_argument("--data", type=Path, action="append", required=True)
    packing.add_argument("--init", type=Path, help="BERT-layout folder; default: all-MiniLM-L6-v2")
    packing.add_argument("--out", type=Path, required=True)
    running = commands.add_parser("run", help="do what is not done yet")
    running.add_argument("--folder", type=Path, default=Path())
    running.add_argument("--minutes", type=float, default=9.0, help="after these no further stage is started")
    running.add_argument("--batch", type=int, default=BATCH, help="documents of a throughput batch")
    running.add_argument("--steps", type=int, default=200, help="of each training run")
    training = commands.add_parser("train", help="one training run; `run` calls it")
    training.add_argument("--folder", type=Path, required=True)
    training.add_argument("--out", type=Path, required=True)
    training.add_argument("--precision", choices=("bf16", "fp16", "fp32"), required=True)
    training.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    {"pack": _pack, "run": _run, "train": _train}[options.command](options)


def _pack(options: argparse.Namespace) -> None:
    from glow.nn import minilm_folder
    from research.gpu.pack import pack

    sizes = pack(options.data, options.init or minilm_folder(), options.out)
    sys.stdout.write(
        json.dumps({"MiB": {part: round(size / 2**20, 1) for part, size in sizes.items()}}) + "\n"
    )


def _run(options: argparse.Namespace) -> None:
    deadline = time.monotonic() + 60 * options.minutes
    folder = options.folder.resolve()
    _prepare(folder)
    done = {json.loads(line)["stage"] for line in _lines(folder / RESULTS)}
    for name, stage in _stages(folder, options):
        if name in done:
            continue
        if time.monotonic() > deadline:
            sys.stdout.write(f"out of time before {name}; call again\n")
            return
        start = time.monotonic()
        try:
            result = stage()
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        _append(folder / RESULTS, {"stage": name, **result, "seconds": round(time.monotonic() - start, 1)})
    if _grid(folder, deadline):
        sys.stdout.write("all done\n")


def _stages(folder: Path, options: argparse.Namespace) -> Iterator[Stage]:
    from research.gpu.stages import chip, gpu_tests, throughput, train_and_resume

    here = chip()
    yield "chip", lambda: here
    yield "tests", lambda: gpu_tests(folder)
    for title, (layers, hidden, heads) in TOWERS.items():
        for precision in ("bf16", "fp16"):
            measured = partial(throughput, layers, hidden, heads, options.batch, precision, here["peak"])
            yield f"throughput {title} {precision}", measured
    on_gpu = here["device"] != "cpu"
    for precision in ("bf16", "fp16") if on_gpu else ("bf16",):
        yield f"train {precision}", partial(train_and_resume, folder, precision, folder, options.steps)


def _grid(folder: Path, deadline: float) -> bool:
    """The grid, as far as time allows; whether it is whole."""
    from research.grid.grid import planned, run
    from research.grid.results import finished

    grid, results = folder / "configs" / "grid.toml", folder / GRID
    data = sorted(path for path in (folder / "data").iterdir() if path.is_dir())
    train = next((path for path in data if path.name == "tldr"), data[0])
    dev = [train, *(path for path in data if path != train)]
    if time.monotonic() < deadline:
        for _ in run(grid, train, dev, folder / "init", results):
            if time.monotonic() > deadline:
                break
    found = finished(results)
    left = sum(item.key not in found for item in planned(grid))
    sys.stdout.write(f"grid: {left} runs are left\n")
    return not left


def _train(options: argparse.Namespace) -> None:
    _prepare(options.folder.resolve())
    from glow.training import TrainConfig, TrainInputs, train

    data = sorted(path for path in (options.folder / "data").iterdir() if path.is_dir())
    config = TrainConfig.model_validate(
        {
            "name": f"gpu-{options.precision}",
            "checkpoint_steps": max(options.steps // 8, 1),
            "towers": {
                "weight_form": "log",
                "pooling": "weighted",
                "init_layers": [0, 4, 5],
                "train_words": False,
            },
            "optimizer": {
                "batch_size": 64,
                "epochs": 1000,
                "max_steps": options.steps,
                "precision": options.precision,
            },
        }
    )
    init = options.folder / "init"
    train(config, TrainInputs(data[-1:], "train", options.out, init, init))


def _prepare(folder: Path) -> None:
    """Makes the packed packages importable behind what is installed, and stands in for what is missing."""
    sys.path.append(str(folder / "site"))
    from research.gpu.standins import stand_in

    if "matplotlib" in stand_in():
        from glow.training import run_folder

        # Metrics are there; pictures are not what the run is for.
        run_folder.draw = lambda rows, folder: None  # type: ignore[attr-defined]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def _append(path: Path, row: dict[str, Any]) -> None:
    line = json.dumps(row)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
