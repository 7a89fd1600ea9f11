"""Measures a plain client alone, and beside two hostile ones at their limits, over loopback.

    python -m tests.attacks --index-root INDEX_ROOT [--only NAME] [--seconds 15]

`INDEX_ROOT` is that of `make demo`; docs/results/hardening.md has the figures.
"""

import argparse
import json
from pathlib import Path

from tests.attacks.harness import (
    Plain,
    explain_batch,
    filter_batch,
    hostile,
    plain_batch,
    rerank_search,
    serving,
)

LIMITED = ("--workers", "2", "--rate-limit", "20", "--rate-burst", "50")
UNLIMITED = ("--workers", "2", "--cache-entries", "0")
ATTACKS = {
    "explained-batches": ("/search/batch", explain_batch(3, 20), LIMITED),
    "plain-batches": ("/search/batch", plain_batch(), LIMITED),
    "long-filters": ("/search/batch", filter_batch("kind", 4), LIMITED),
    "re-ranking": ("/search", rerank_search(), UNLIMITED),
}


def main() -> None:
    """Runs the attacks that are asked for, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--index-root", type=Path, required=True)
    parser.add_argument("--only", choices=sorted(ATTACKS))
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    for name in [options.only] if options.only else ATTACKS:
        path, body, flags = ATTACKS[name]
        with serving(options.index_root, *flags, keys=True) as service:
            warm, alone, beside = (Plain(service.url, pace_s=0.06) for _ in range(3))
            warm.ask(2.0)
            alone.ask(options.seconds)
            with hostile(service.url, path, body) as statuses:
                beside.ask(options.seconds)
        ratio = round(beside.summary()["p99_ms"] / alone.summary()["p99_ms"], 2)
        figures = {"alone": alone.summary(), "beside": beside.summary(), "hostile": statuses}
        print(json.dumps({"attack": name, "p99_ratio": ratio, **figures}), flush=True)  # noqa: T201 - a program


if __name__ == "__main__":
    main()
