"""`python -m service`: the program `glow`."""

from glow.cli import main

if __name__ == "__main__":
    main()
