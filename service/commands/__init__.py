"""The commands of the service, one file each; `glow.cli` lists them, and a command is imported when it is used."""
