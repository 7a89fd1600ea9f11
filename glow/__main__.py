"""`python -m glow`: the command `glow`."""

from glow.cli import main

if __name__ == "__main__":
    main()
