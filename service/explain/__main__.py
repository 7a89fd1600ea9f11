"""`python -m service.explain`, the former name of `glow explain`."""

import typer

from glow_service.commands.explain import explain_command

if __name__ == "__main__":
    typer.run(explain_command)
