"""What the BM25 weights of a model do: the same towers with weights of 1."""
