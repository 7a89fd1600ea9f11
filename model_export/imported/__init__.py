"""Encoders that others trained, as model artifacts: `glow import-model`."""

from glow_model_export.imported.foreign import Foreign, read_foreign, write_vocabulary

__all__ = ["Foreign", "read_foreign", "write_vocabulary"]
