"""`python -m demo`, as it was called before `glow demo`."""

import typer

from glow_demo.command import demo_command

if __name__ == "__main__":
    typer.run(demo_command)
