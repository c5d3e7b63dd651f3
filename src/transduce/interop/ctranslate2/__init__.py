"""CTranslate2: folders with model.bin; written, read, and used as an engine."""
