"""The Transformer in compiled code, for processors: C sources, how they are built, loaded and given their weights."""
