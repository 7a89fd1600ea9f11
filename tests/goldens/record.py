"""Writes the goldens anew: `python -m tests.goldens.record`. What git then shows is what changed for users.

With a FILE, records all that they ask for there if there is no such file, else compares it exactly.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from tests.goldens.compare import differences, exact, portable, save

FOLDER = Path(__file__).parent


def main(file: Path | None = None) -> int:
    """Builds, asks, and writes or compares; the number of differences, each of which is printed."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch and FAISS are loaded, as the tests have it
    from tests.goldens.whole import whole

    with tempfile.TemporaryDirectory() as work:
        found = json.loads(json.dumps(whole(Path(work))))
    if file is None:
        for name, states in found.items():
            save(FOLDER / f"{name}.json", portable(states))
    elif not file.exists():
        file.write_text(json.dumps(found, indent=1), encoding="utf-8")
    else:
        lines = list(differences(json.loads(file.read_bytes()), found, exact, ""))
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        return len(lines)
    return 0


if __name__ == "__main__":
    sys.exit(min(main(*map(Path, sys.argv[1:])), 1))
