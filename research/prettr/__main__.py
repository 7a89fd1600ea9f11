"""PreTTR's Tables 3 to 5: quality by layers apart and by stored numbers, and latency; late interaction beside them.

Written before the runs. Three layers of MiniLM (0, 4, 5); 20 + 64 tokens; a linear layer over [CLS] is the whole score. Measure:
nDCG@10 over BM25's first 50, 1,000 dev queries of tldr, 95 % intervals over queries and seeds. Hypotheses: (1) one layer apart costs
less than .01; two cost more than .02; (2) joined layers add less than .01 to late interaction over the same states; (3) with one layer
apart, e = 128 loses less than .01 and e = 32 more than .02; (4) a compressor from unlabelled pairs is within .005 of one from
judged candidates; (5) the last layer alone is 15 times as fast as six joined. The rate was chosen by the training loss of l = 0.
"""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from glow.commands import package_app, reporting, say
from glow.evaluation import write_run
from glow.nn import CrossConfig
from glow.records import Hit
from research.folders import given_file, given_folder, names_among, read_records, write_folder
from research.prettr.cost import stored_bytes, times
from research.prettr.models import ARMS, Study, judged
from research.prettr.report import tables

Out = Annotated[Path, typer.Option(help="Folder of the pairs and of results.jsonl.")]


def pairs_command(
    corpus: Annotated[Path, given_file("JSON Lines of documents, as of `python -m research debian`")],
    out: Out,
    source: Annotated[str, typer.Option(help="Documents to take.")] = "book",
) -> None:
    """Write headings, each with its own and a random paragraph, for compressors (PreTTR section 4.2)."""
    found = [each for each in read_records(corpus) if each.get("source") == source and each.get("title")]
    ids = [f"p{number}" for number in range(len(found))]
    documents = [{"_id": name, "text": each["text"]} for name, each in zip(ids, found, strict=True)]
    queries = [{"_id": name, "text": each["title"]} for name, each in zip(ids, found, strict=True)]
    write_folder(out / "pairs", documents, queries, {"train": {name: [name] for name in ids}})
    # Shifted by 1 to n - 1, so never the own paragraph.
    others = (np.arange(len(ids)) + np.random.default_rng(0).integers(1, len(ids), len(ids))) % len(ids)
    pairs = zip(ids, others.tolist(), strict=True)
    write_run(out / "pairs.trec", {name: [Hit(name, 1.0), Hit(ids[at], 0.5)] for name, at in pairs}, "pairs")
    say(f"{len(ids):,} headings")


def rank_command(
    data: Annotated[Path, given_folder("BEIR folder with splits train and dev")],
    train_run: Annotated[Path, given_file("TREC run of the split train")],
    dev_run: Annotated[Path, given_file("TREC run of the split dev")],
    out: Out,
    arms: Annotated[str, names_among(tuple(ARMS), "Arms, in this order")] = ",".join(ARMS),
    seeds: Annotated[str, typer.Option(help="Seeds, in this order.")] = "0,1,2",
    steps: Annotated[int, typer.Option(min=1, help="Of 8 queries.")] = 800,
    compressor_steps: Annotated[int, typer.Option(min=1, help="Of 8 headings.")] = 500,
    queries: Annotated[int, typer.Option(min=1, help="Of the split dev.")] = 1000,
    layers: Annotated[str, typer.Option(help="Layers of MiniLM to start from.")] = "0,4,5",
) -> None:
    """Train and measure arms; results that exist are kept."""
    torch.set_num_threads(1)
    with reporting():
        file = out / "results.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        known = {(each["arm"], each["seed"]) for each in read_records(file)} if file.is_file() else set()
        sources = {"judged": (data, train_run), "pairs": (out / "pairs", out / "pairs.trec")}
        kept = tuple(int(layer) for layer in layers.split(","))
        study = Study(sources, *judged(data, dev_run, "dev", queries), kept, steps, compressor_steps)
        every = [(name, seed) for seed in map(int, seeds.split(",")) for name in arms.split(",")]
        for name, seed in [("first", 0), *every]:
            if (name, seed) not in known:
                for result in study.measure(name, seed) if name in ARMS else [study.first()]:
                    with file.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps(result, separators=(",", ":")) + "\n")
                    say(f"{result['arm']} {seed}: {result['means']} {result.get('losses', '')}")


def report_command(results: Annotated[Path, given_file("JSON Lines of `rank`")]) -> None:
    """Print the tables of arms and contrasts."""
    typer.echo("\n".join(tables(read_records(results))))


def cost_command(
    documents: Annotated[int, typer.Option(min=1, help="Candidates.")] = 100,
    document_tokens: Annotated[int, typer.Option(min=2)] = 108,
    layers: Annotated[int, typer.Option(min=1)] = 6,
    compressed: Annotated[int, typer.Option(min=1, help="Stored numbers per token.")] = 128,
) -> None:
    """Print latency by layers apart (one thread, float32), and storage, as JSON Lines."""
    torch.set_num_threads(1)
    shape = CrossConfig(
        vocabulary=1000, layers=layers, query_tokens=12, document_tokens=document_tokens, fields=1, late=128
    )
    for split in range(layers):
        changes = {"split": split, "compressed": compressed if split else 0}
        typer.echo(json.dumps(times(shape.model_copy(update=changes), documents)))
    for size in (32, 64, 128, 384):
        typer.echo(json.dumps({"e": size, "bytes": stored_bytes(size)}))


app = package_app(
    {"pairs": pairs_command, "rank": rank_command, "report": report_command, "cost": cost_command},
    "PreTTR's tables beside late interaction.",
)

if __name__ == "__main__":
    app()
