"""`python -m index_builder`: the program `glow`."""

from glow.cli import main

if __name__ == "__main__":
    main()
