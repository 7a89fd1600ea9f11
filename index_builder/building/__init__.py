"""One build, from the input to a version: its steps, its work directory and its report."""
