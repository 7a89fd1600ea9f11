"""The training commands, one file for each family; `glow.cli.verbs` lists them."""
