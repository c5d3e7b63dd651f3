"""Operations tuned for a processor, which know no models, files or settings; each has a plain reference and a test."""

__all__: list[str] = []
