"""Changes to a live version without a rebuild: upsert, delete, compact."""
