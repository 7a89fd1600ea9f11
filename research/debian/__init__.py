"""Training texts from Debian's documentation packages."""
