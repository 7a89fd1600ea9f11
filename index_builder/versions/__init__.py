"""Operations on whole versions: judge, tune, derive and remove."""
