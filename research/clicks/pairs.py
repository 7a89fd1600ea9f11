"""As many true pairs as clicks found: a data folder of tldr's train questions, to train on in place of clicks.

python -m research.clicks.pairs --data $DATA/tldr --like OUT/train --out FOLDER [--seed 0]
"""

import argparse
import json
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np

from glow.collection import read_qrels


def main() -> None:
    """Writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--like", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    of_query: defaultdict[str, list[str]] = defaultdict(list)
    for row in read_qrels(options.data / "qrels" / "train.tsv"):
        of_query[row.query_id].append(row.document_id)
    wanted = len({row.query_id for row in read_qrels(options.like / "qrels" / "train.tsv")})
    chosen = np.random.default_rng(options.seed).permutation(sorted(of_query))[:wanted].tolist()
    (options.out / "qrels").mkdir(parents=True)
    shutil.copy(options.like / "corpus.jsonl", options.out)
    lines = (options.data / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if json.loads(line)["_id"] in set(chosen)]
    (options.out / "queries.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
    rows = [f"{query}\t{document}\t1" for query in chosen for document in of_query[query]]
    header = "query-id\tcorpus-id\tscore"
    (options.out / "qrels" / "train.tsv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
