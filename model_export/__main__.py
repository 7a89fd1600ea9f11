"""`python -m model_export`: the old name of `glow export-model`."""

import typer

from glow.commands import package_app
from glow_model_export.command import export_command

app = package_app({"export": export_command}, "Export trained towers to a model artifact (ONNX).")

if __name__ == "__main__":
    typer.run(export_command)
