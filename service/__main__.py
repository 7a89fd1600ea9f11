"""`python -m service`, as it was called before `glow serve`."""

import typer

from glow_service.commands.serve import serve_command

if __name__ == "__main__":
    typer.run(serve_command)
