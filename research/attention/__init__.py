"""Studies which words the towers attend to."""
