"""Attacks a service over loopback and says what became of it and of its other clients.

    python -m tests.attacks --index-root INDEX_ROOT [--tree CHECKOUT] [--only NAME] [--seconds 15]

`INDEX_ROOT` is that of `make demo`. docs/results/hardening.md has the figures; tests/attacks/test_attacks.py runs each for a moment.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from tests.attacks.attacks import ATTACKS
from tests.attacks.harness import ROOT


def main() -> None:
    """Runs the attacks that are asked for, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--index-root", type=Path, required=True)
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--only", choices=sorted(ATTACKS))
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    for name in [options.only] if options.only else ATTACKS:
        figures: dict[str, Any] = ATTACKS[name](options.index_root, options.seconds, options.tree)
        print(json.dumps({"attack": name, **figures}), flush=True)  # noqa: T201 - a program


if __name__ == "__main__":
    main()
