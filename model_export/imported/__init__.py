"""`glow import-model`: imports third-party encoders as model artifacts."""

from glow_model_export.imported.foreign import Foreign, read_foreign, write_vocabulary

__all__ = ["Foreign", "read_foreign", "write_vocabulary"]
