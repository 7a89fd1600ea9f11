"""Compares pre-training objectives at equal text (docs/papers/cross-thought.md).

Q   queries     D   documents       N   special tokens      H   hidden size     L   tokens of a sequence
"""

import json
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from scipy.stats import t
from torch import Tensor
from torch.nn import functional

from benchmarks.report import machine
from glow.index.ranking import SearchParams
from glow.index.vectors.build import build_dense
from glow.nn import Pretrainer, minilm_folder
from glow.records import Document, Query
from glow.schema import FieldSchema
from glow.text import WordPieces, batches_by_length
from glow.training import Collection, Given, TrainConfig, read_collection, train
from glow.training.checkpoint import load_pretrained, save_pretrained
from glow.training.encode import EncodedCorpus, EncodeOptions, open_source
from glow.training.pretraining import PretrainConfig, initial_pretrainer
from research.folders import append, given_folder, names_among, read_records
from research.steps import measured

VARIANTS: dict[str, dict[str, Any]] = {
    "cross-thought-5": {"kind": "cross-thought", "specials": 5},
    "cross-thought-1": {"kind": "cross-thought", "specials": 1},
    "cross-thought-1-512": {"kind": "cross-thought", "specials": 1, "length": 512, "sequences": 4},
    "cross-thought-5-bag": {"kind": "cross-thought", "specials": 5, "bag": 1.0},
    "cross-thought-5-rate": {"kind": "cross-thought", "specials": 5, "rate": 4.0},
    "cross-thought-5-page": {"kind": "cross-thought", "specials": 5, "sequences": 8},
    "mlm-64": {"kind": "mlm", "specials": 1},
    "mlm-512": {"kind": "mlm", "specials": 1, "length": 512},
    "retro": {"kind": "retro", "specials": 1, "masked": 0.3},
    "crops": {"kind": "crops", "specials": 1},
}
"""Variants by name; `rate` multiplies the learning rate. `none` is the same encoder without pre-training."""
BATCH_TOKENS = 4096
SMALL: dict[str, Any] = {
    "init": "none", "init_layers": [0, 1, 2], "hidden": 128, "heads": 4, "positions": 544, "dropout": 0.0,
}  # fmt: skip
"""Random start: three layers of 128."""
RATE, TUNED_RATE = 1e-3, 5e-4


def config_of(variant: str, seed: int, tokens: int) -> PretrainConfig:
    """The configuration of a variant over about this number of tokens."""
    text = dict({"kind": "mlm", "specials": 1} if variant == "none" else VARIANTS[variant])
    rate, steps = RATE * text.pop("rate", 1.0), max(1, tokens // BATCH_TOKENS)
    return PretrainConfig.model_validate(
        {
            "name": f"{variant}-chance",
            "seed": seed,
            "checkpoint_steps": 10_000,
            "pretraining": {"sequences": 32, **text},
            "encoder": SMALL,
            "optimizer": {"batch_tokens": BATCH_TOKENS, "steps": steps, "learning_rate": rate},
        }
    )


def attention_shares(logits: Tensor, own: Tensor | None = None) -> Tensor:
    """A query's attention over candidates, averaged over heads and special tokens (Eq. 7).

    Logits float [heads, Q, D] give float [Q, D]. A query's logits with itself, `own` float [heads, Q], take attention as in
    pre-training; without them it is masked, because a query is not relevant to itself (row 32).
    """
    if own is None:
        return logits.softmax(-1).mean(0)
    return torch.cat([own[..., None], logits], -1).softmax(-1)[..., 1:].mean(0)


LONGEST = 126
DEPTH = 100
MEASURES = ("RR@10", "nDCG@10", "R@1", "R@100")
Rankings = NDArray[np.int64]


class SentenceTexts:
    """Queries and documents of a collection as sequences of tokens."""

    def __init__(self, collection: Collection, pieces: WordPieces) -> None:
        self.collection = collection
        self.queries = [_ids(text, pieces) for text in collection.queries]
        self.documents = [_ids(_text(document), pieces) for document in collection.documents]


def _text(document: Document) -> str:
    parts = [text for name in ("title", "anchor", "text") for text in document.fields.get(name, ())]
    return ". ".join(parts)


def _ids(text: str, pieces: WordPieces) -> list[int]:
    ids = [number for word in pieces.words(text) for number in pieces.pieces(word)]
    return ids[:LONGEST] or [pieces.sep_id]


def padded(sequences: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids int64 and mask bool [S, L] of sequences, padded to the longest one."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(each) for each in sequences], batch_first=True)
    lengths = torch.tensor([len(each) for each in sequences])
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]


def states(model: Pretrainer, sequences: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Special states float32 [S, N, H], and the mean of all states float32 [S, H]."""
    count, hidden = model.config.specials, model.config.hidden
    specials, means = torch.empty(len(sequences), count, hidden), torch.empty(len(sequences), hidden)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for rows in batches_by_length([len(each) for each in sequences], 8192):
            ids, mask = padded([sequences[row] for row in rows])
            found = model.encoder(ids, mask).float()
            share = functional.pad(mask, (count, 0), value=True)[..., None].float()
            specials[rows], means[rows] = found[:, :count], (found * share).sum(1) / share.sum(1)
    return specials, means


def rank_without_labels(model: Pretrainer, texts: SentenceTexts) -> dict[str, Rankings]:
    """Rows of the best documents of every query, int64 [Q, 100], by every method that the model supports.

    `mean`: cosine of the mean states; `cls`: of the first special state; `specials`: of all N concatenated; `logits`:
    mean attention logits, an inner product for a dense index; `shares`: mean attention (Eq. 10) among all documents.
    """
    (asked, asked_mean), (ranked, ranked_mean) = states(model, texts.queries), states(model, texts.documents)
    found = {
        "mean": _nearest(functional.normalize(asked_mean, dim=-1), functional.normalize(ranked_mean, dim=-1)),
        "cls": _nearest(
            functional.normalize(asked[:, 0], dim=-1), functional.normalize(ranked[:, 0], dim=-1)
        ),
    }
    if model.crossed is not None:
        flat = [functional.normalize(each, dim=-1).flatten(1) for each in (asked, ranked)]
        found["specials"] = _nearest(*flat)
        with torch.inference_mode():
            sides = ((asked, "query"), (ranked, "document"))
            found["logits"] = _nearest(*(model.crossed.ranking_vectors(*side) for side in sides))
            logits = (model.crossed.logits(block, ranked) for block in torch.split(asked, 64))
            best = [attention_shares(each).topk(min(DEPTH, len(ranked))).indices for each in logits]
            found["shares"] = torch.cat(best).numpy()
    return found


def _nearest(queries: Tensor, documents: Tensor) -> Rankings:
    index = build_dense(documents.numpy(), "flat")
    return index.search(queries.numpy(), min(DEPTH, len(documents)), SearchParams())[1]


def measures(collection: Collection, ranked: Iterable[Iterable[int]]) -> dict[str, float]:
    """Mean measures over the queries."""
    means = measured(collection, ranked, MEASURES).means
    return {name: round(mean, 5) for name, mean in means.items()}


app = typer.Typer(add_completion=False)
BASELINE = "mlm-64"
COLUMNS = (
    ("unsupervised", "mean"), ("unsupervised", "cls"), ("unsupervised", "specials"), ("unsupervised", "logits"),
    ("unsupervised", "shares"), ("tuned", "mean"),
)  # fmt: skip


@app.command()
def report(results: Annotated[Path, typer.Option()]) -> None:
    """Prints a table for every data directory: means over seeds, and 95 % intervals of differences to masked words."""
    groups: dict[tuple[str, int], dict[str, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    for row in read_records(results):
        groups[row["data"], row["tokens"]][row["variant"]][row["seed"]] = row
    for (data, tokens), variants in groups.items():
        names = " | ".join(f"{'tuned ' if part == 'tuned' else ''}{way}" for part, way in COLUMNS)
        lines = [f"\n{data}, {tokens:,} pieces, RR@10\n", f"| variant | seeds | {names} |"]
        lines.append("|---" * (len(COLUMNS) + 2) + "|")
        for variant, rows in variants.items():
            cells = [_cell(rows, variants.get(BASELINE, {}), part, way) for part, way in COLUMNS]
            lines.append(f"| {variant} | {len(rows)} | {' | '.join(cells)} |")
        sys.stdout.write("\n".join(lines) + "\n")


def _cell(rows: dict[int, Any], base: dict[int, Any], part: str, way: str) -> str:
    values, beside = (
        {seed: row[part][name]["RR@10"] for seed, row in each.items() if name in row.get(part, {})}
        for each, name in ((rows, way), (base, "mean"))
    )
    if not values:
        return "–"
    shown = f"{np.mean(list(values.values())):.3f}"
    less = [values[seed] - beside[seed] for seed in sorted(values.keys() & beside.keys())]
    if base is not rows and len(less) > 1:  # by Student's t, paired by seed
        half = t.ppf(0.975, len(less) - 1) * np.std(less, ddof=1) / len(less) ** 0.5
        shown += f" ({np.mean(less) - half:+.3f} to {np.mean(less) + half:+.3f})"
    return shown


LAYERS = 3


@app.command()
def run(
    data: Annotated[Path, given_folder("Folder whose documents are read, and whose split dev is ranked.")],
    out: Annotated[
        Path, typer.Option(help="Results, one JSON line per run; existing runs are not repeated.")
    ],
    work: Annotated[Path, typer.Option(help="Folder for checkpoints.")],
    variants: Annotated[str, names_among(["none", *VARIANTS], "Of pre-training, by commas.")] = ",".join(
        ["none", *VARIANTS]
    ),
    seeds: Annotated[str, typer.Option()] = "0,1,2,3,4",
    tokens: Annotated[int, typer.Option()] = 2_000_000,
    steps: Annotated[int, typer.Option(help="Of fine-tuning; 0 leaves it out.")] = 250,
) -> None:
    """Pre-trains every variant with every seed, ranks without labels, fine-tunes, and ranks again."""
    torch.set_num_threads(1)
    schema, pieces = FieldSchema.preset("glow-default"), WordPieces(minilm_folder() / "vocab.txt")
    dev = SentenceTexts(read_collection(data, "dev", schema), pieces)
    done = [_key(row) for row in read_records(out)] if out.is_file() else []
    for seed in map(int, seeds.split(",")):
        for variant in variants.split(","):
            texts = [data.name]
            row: dict[str, Any] = {
                "data": data.name, "start": "chance", "variant": variant, "seed": seed, "tokens": tokens, "texts": texts,
            }  # fmt: skip
            if _key(row) in done:
                continue
            begun = time.monotonic()
            folder = work / f"{data.name}-chance-{variant}-{seed}"
            row |= _pretrained(folder, variant, seed, tokens, [data / "corpus.jsonl"])
            row["unsupervised"] = _means(dev, rank_without_labels(load_pretrained(folder).model, dev))
            if steps:
                row["tuned"] = {"mean": _tuned(folder, data, dev.collection, steps, seed)}
            row["seconds"] = round(time.monotonic() - begun, 1)
            row["machine"] = machine()
            append(out, row)
            sys.stderr.write(f"{variant} seed {seed}: {row['unsupervised']['mean']} {row['seconds']} s\n")
            for rest in (".tuned", ".tuned.run", ".run"):
                shutil.rmtree(folder.with_name(folder.name + rest), ignore_errors=True)


def _key(row: dict[str, Any]) -> list[Any]:
    return [row[name] for name in ("data", "start", "variant", "seed", "tokens", "texts")]


def _means(texts: SentenceTexts, found: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {name: measures(texts.collection, ranked.tolist()) for name, ranked in found.items()}


def _pretrained(folder: Path, variant: str, seed: int, tokens: int, corpora: list[Path]) -> dict[str, Any]:
    config, init = config_of(variant, seed, tokens), minilm_folder()
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


def _tuned(checkpoint: Path, data: Path, dev: Collection, steps: int, seed: int) -> dict[str, float]:
    """Measures after steps of 64 pairs, with both towers from one checkpoint and weights of 1."""
    out = checkpoint.with_name(checkpoint.name + ".tuned")
    shutil.rmtree(out, ignore_errors=True)
    optimizer = {"batch_size": 64, "epochs": 10, "max_steps": steps, "learning_rate": TUNED_RATE}
    parts: dict[str, Any] = {"weighting": {"formula": "none"}, "optimizer": optimizer}
    parts |= {"towers": {"init_layers": [*range(LAYERS)], "pooling": "mean"}}
    about = {"name": "tuned", "seed": seed, "document_tokens": 128, "checkpoint_steps": 10_000}
    config = TrainConfig.model_validate(about | parts)
    train(config, Given(data=[data], out=out, init=checkpoint, device="cpu"))
    corpus = EncodedCorpus(open_source(out, EncodeOptions()), dev.documents)
    rows = {identifier: row for row, identifier in enumerate(corpus.ids)}
    run = corpus.search([Query(str(i), text) for i, text in enumerate(dev.queries)], DEPTH)
    return measures(dev, [[rows[hit.document_id] for hit in run[str(i)]] for i in range(len(dev.queries))])


if __name__ == "__main__":
    app()
