"""A search: its request, its plan for one index, its stages, and the threads in which searches run."""
