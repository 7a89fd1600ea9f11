"""`python -m service.explain`, as it was called before `glow explain`."""

import typer

from glow_service.commands.explain import explain_command

if __name__ == "__main__":
    typer.run(explain_command)
