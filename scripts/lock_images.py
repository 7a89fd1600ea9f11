"""Writes lock files of the container images and of `.venv`: one version of every package, with the hashes of its files.

    python -m scripts.lock_images [--upgrade] [--constraints FILE]

Reads `pyproject.toml` and writes `docker/requirements/*.txt` with `uv pip compile`, which queries the package index and
installs nothing. Locked versions stay unless `--upgrade` is given. `dev.txt` comes first, and the others use its
versions, so the images install the versions that the tests used.
"""

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docker" / "requirements"
FILES = ("formats", "pages", "documents")
LOCKS: dict[str, tuple[str, ...]] = {
    "dev": ("dev", "eval", "train", "export"),
    "serve": ("models",),
    "service": ("otel",),
    "service-milvus": ("milvus", "otel"),
    "service-gpu": ("gpu", "otel"),
    "builder": (*FILES, "models"),
    "builder-gpu": (*FILES, "gpu"),
    "builder-ray": (*FILES, "cluster", "milvus"),
    "train": ("train", "export", "eval"),
    "train-gpu": ("train", "export", "eval"),
}
"""Lock file -> extras of pyproject.toml that it includes."""
BUILD = ("pip", "setuptools", "uv")
"""Packages that build the environments and are not in the images."""
UNLOCKED = {"dev": ("torch",), "builder-gpu": ("onnxruntime",)}
"""Lock file -> packages that it leaves out (docs/decisions/0018); markitdown asks for the CPU's onnxruntime."""
_REPLACED_BY_GPU = ("onnxruntime>", "faiss-cpu>")
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


def requirements(lock: str) -> list[str]:
    """The requirements of a lock file by pyproject.toml; the extra `gpu` replaces two packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = LOCKS[lock]
    replaced = _REPLACED_BY_GPU if "gpu" in extras else ()
    wanted = [line for line in project["dependencies"] if not line.startswith(replaced)]
    for extra in extras:
        wanted += [line for line in project["optional-dependencies"][extra] if line not in wanted]
    return wanted


def _compile(lock: str, wanted: Sequence[str], options: argparse.Namespace) -> None:
    command = [sys.executable, "-m", "uv", "pip", "compile", "-", "--quiet", "--generate-hashes"]
    command += ["--python-version", "3.11", "--no-annotate", "--custom-compile-command"]
    command += ["python -m scripts.lock_images", "--output-file", str(FOLDER / f"{lock}.txt")]
    if lock in ("dev", "train"):  # the CPU wheels have another version, from another index
        wanted = [line.replace("torch==2.13.0", "torch==2.13.0+cpu") for line in wanted]
        folder = Path(options.torch_index)
        command += ["--find-links" if folder.is_dir() else "--extra-index-url", options.torch_index]
        command += ["--index-strategy", "unsafe-best-match"]
    command += ["--python-platform", "x86_64-manylinux_2_28"] if lock == "train" else ["--universal"]
    for package in UNLOCKED.get(lock, ()):
        command += ["--no-emit-package", package]
    if lock not in ("build", "dev"):
        command += ["--constraints", str(FOLDER / "dev.txt")]
    if options.upgrade:
        command.append("--upgrade")
    if options.constraints:
        command += ["--constraints", str(options.constraints)]
    subprocess.run(command, input="\n".join(wanted), text=True, check=True)


def main() -> None:
    """Writes the lock files."""
    parser = argparse.ArgumentParser(prog="python -m scripts.lock_images", description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit")
    parser.add_argument("--constraints", type=Path, help="versions to keep to, such as those of .venv")
    parser.add_argument("--torch-index", default=TORCH_INDEX, help="index or folder with torch for the CPU")
    options = parser.parse_args()
    _compile("build", BUILD, options)
    for lock in LOCKS:
        _compile(lock, requirements(lock), options)


if __name__ == "__main__":
    main()
