"""Which words towers look at."""
