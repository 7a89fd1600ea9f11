"""Records all that the goldens ask for in a new file, or compares it exactly: `python -m tests.goldens.exact FILE`."""

import json
import os
import sys
import tempfile
from pathlib import Path

from tests.goldens.compare import differences, exact


def main(path: Path) -> int:
    """Records or compares; the number of differences, each of which is printed."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch and FAISS are loaded, as the tests have it
    from tests.goldens.whole import whole

    with tempfile.TemporaryDirectory() as work:
        found = json.loads(json.dumps(whole(Path(work))))
    if not path.exists():
        path.write_text(json.dumps(found, indent=1), encoding="utf-8")
        return 0
    lines = list(differences(json.loads(path.read_bytes()), found, exact, ""))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return len(lines)


if __name__ == "__main__":
    sys.exit(min(main(Path(sys.argv[1])), 1))
