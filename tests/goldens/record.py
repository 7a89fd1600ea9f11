"""Writes the goldens anew: `python -m tests.goldens.record`. What git then shows is what changed for users."""

import os
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> None:
    """Builds, asks and writes."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch and FAISS are loaded, as the tests have it
    from tests.goldens.compare import portable, save
    from tests.goldens.whole import whole

    with tempfile.TemporaryDirectory() as work:
        for name, states in whole(Path(work)).items():
            save(FOLDER / f"{name}.json", portable(states))


if __name__ == "__main__":
    main()
