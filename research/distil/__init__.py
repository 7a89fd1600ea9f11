"""Training texts of a fast query tower, and the encoder layers that it keeps."""
