"""Compares pre-training objectives: `python -m research pretraining run --data DIR --out FILE --work DIR` and `… report --results FILE`."""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.machine import machine
from glow.nn import minilm_folder
from glow.schema import FieldSchema
from glow.text import WordPieces
from glow.training import Given, read_collection, train
from glow.training.pretraining import initial_pretrainer, load_pretrained, save_pretrained
from research.folders import append, given_file, given_folder, names_among
from research.pretraining.chosen import chosen_on_text
from research.pretraining.probe import LENGTH, probe
from research.pretraining.ranking import SentenceTexts, measures, rank_without_labels
from research.pretraining.report import report
from research.pretraining.tuned import tuned_attention, tuned_pairs, tuned_towers
from research.pretraining.variants import VARIANTS, config_of

app = typer.Typer(add_completion=False)
LAYERS = 3
TUNED_RATES = {"chance": 5e-4, "minilm": 1e-4}


@app.command()
def run(
    data: Annotated[Path, given_folder("Folder whose documents are read, and whose split dev is ranked.")],
    out: Annotated[
        Path, typer.Option(help="Results, one JSON line per run; existing runs are not repeated.")
    ],
    work: Annotated[Path, typer.Option(help="Folder for checkpoints.")],
    corpus: Annotated[list[Path] | None, given_file("Texts in addition to the directory's own.")] = None,
    variants: Annotated[str, names_among(["none", *VARIANTS], "Of pre-training, by commas.")] = ",".join(
        ["none", *VARIANTS]
    ),
    seeds: Annotated[str, typer.Option()] = "0,1,2,3,4",
    start: Annotated[str, typer.Option(help="chance or minilm")] = "chance",
    tokens: Annotated[int, typer.Option()] = 2_000_000,
    steps: Annotated[int, typer.Option(help="Of fine-tuning; 0 leaves it out.")] = 250,
    ways: Annotated[
        str, typer.Option(help="Of fine-tuning, by commas: mean, cls, attention (Eq. 10), pairs (Eq. 11).")
    ] = "mean",
    threads: Annotated[int, typer.Option()] = 1,
) -> None:
    """Pre-trains every variant with every seed, ranks without labels, fine-tunes, and ranks again."""
    torch.set_num_threads(threads)
    schema, pieces = FieldSchema.preset("glow-default"), WordPieces(minilm_folder() / "vocab.txt")
    learned, dev = (SentenceTexts(read_collection(data, split, schema), pieces) for split in ("train", "dev"))
    done = (
        {json.dumps(_key(json.loads(line))) for line in out.read_text().splitlines()}
        if out.is_file()
        else set()
    )
    for seed in map(int, seeds.split(",")):
        for variant in variants.split(","):
            row: dict[str, Any] = {
                "data": data.name,
                "start": start,
                "variant": variant,
                "seed": seed,
                "tokens": tokens,
            }
            row["texts"] = [data.name, *(path.parent.name for path in corpus or ())]
            if json.dumps(_key(row)) in done:
                continue
            begun = time.monotonic()
            folder = work / f"{data.name}-{start}-{variant}-{seed}"
            row |= _pretrained(folder, variant, start, seed, tokens, [data / "corpus.jsonl", *(corpus or ())])
            row["unsupervised"] = _means(dev, rank_without_labels(load_pretrained(folder).model, dev))
            if steps:
                row["tuned"] = _tuned(folder, ways.split(","), start, data, learned, dev, steps, seed)
            row["seconds"] = round(time.monotonic() - begun, 1)
            row["machine"] = machine()
            append(out, row)
            sys.stderr.write(f"{variant} seed {seed}: {row['unsupervised']['mean']} {row['seconds']} s\n")
            shutil.rmtree(folder.with_name(folder.name + ".tuned"), ignore_errors=True)
            shutil.rmtree(folder.with_name(folder.name + ".run"), ignore_errors=True)


def _key(row: dict[str, Any]) -> list[Any]:
    return [row[name] for name in ("data", "start", "variant", "seed", "tokens", "texts")]


def _means(texts: SentenceTexts, found: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {name: measures(texts.collection, ranked) for name, ranked in found.items()}


def _pretrained(
    folder: Path, variant: str, start: str, seed: int, tokens: int, corpora: list[Path]
) -> dict[str, Any]:
    config, init = config_of(variant, start, seed, tokens), minilm_folder()
    if variant != "none":
        made = train(config, Given(out=folder, init=init, corpora=corpora, device="cpu"))
        told = (folder.with_name(f"{folder.name}.run") / "metrics.jsonl").read_text().splitlines()
        return {
            "loss": round(made["final_loss"], 4),
            "entropy": json.loads(told[-1]).get("entropy"),
            "passes": round(made["steps"] * config.samples / made["samples_per_pass"], 3),
            "pretrain_seconds": made["seconds"],
        }
    pieces = WordPieces(init / "vocab.txt")
    save_pretrained(folder, initial_pretrainer(config, init, pieces.cls_id), pieces, {})
    return {"loss": None, "passes": 0, "pretrain_seconds": 0}


def _tuned(
    folder: Path,
    ways: list[str],
    start: str,
    data: Path,
    learned: SentenceTexts,
    dev: SentenceTexts,
    steps: int,
    seed: int,
) -> dict[str, Any]:
    out, rate = folder.with_name(folder.name + ".tuned"), TUNED_RATES[start]
    found: dict[str, Any] = {}
    for pooling in [way for way in ways if way in ("mean", "cls")]:
        shutil.rmtree(out, ignore_errors=True)
        ranked = tuned_towers(folder, LAYERS, data, dev.collection, out, steps, seed, rate, pooling)
        found[pooling] = measures(dev.collection, ranked)
        shutil.rmtree(out.with_name(out.name + ".run"), ignore_errors=True)
    crossed = load_pretrained(folder).model.crossed is not None
    if crossed and "attention" in ways:
        found |= _means(dev, tuned_attention(folder, learned, dev, steps, seed, rate))
    if crossed and "pairs" in ways:
        for name, symmetric in (("pairs", False), ("pairs, symmetric", True)):
            found[name] = round(tuned_pairs(folder, learned, steps, seed, rate, symmetric=symmetric), 4)
    return found


app.command(name="report")(report)


@app.command("probe")
def run_probe(
    out: Annotated[Path, typer.Option(help="Folder for checkpoints and texts.")],
    results: Annotated[Path, typer.Option(help="Results, one JSON line per run.")],
    steps: Annotated[int, typer.Option(help="Of 2,048 tokens.")] = 1000,
    seeds: Annotated[str, typer.Option()] = "0,1,2",
    bag: Annotated[
        float, typer.Option(help="Weight of telling a sequence's words from its special token.")
    ] = 0.0,
    threads: Annotated[int, typer.Option()] = 1,
) -> None:
    """Pre-trains Cross-Thought on text whose masked values stand in one other sequence alone, and measures what attention chooses."""
    torch.set_num_threads(threads)
    for seed in map(int, seeds.split(",")):
        found = probe(out / f"probe-{bag:g}-{seed}", steps, seed, bag=bag)
        append(
            results,
            {"probe": LENGTH, "steps": steps, "seed": seed, "bag": bag, **found, "machine": machine()},
        )


@app.command("chosen")
def run_chosen(
    model: Annotated[Path, given_folder("Checkpoint of Cross-Thought.")],
    text: Annotated[Path, given_file("Corpus whose samples are read.")],
    picture: Annotated[Path | None, typer.Option(help="PNG file of the first sample.")] = None,
    samples: Annotated[int, typer.Option()] = 50,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Prints what the attention of masked sequences chooses on real text."""
    sys.stdout.write(json.dumps(chosen_on_text(model, text, samples, seed, picture)) + "\n")


if __name__ == "__main__":
    app()
