"""The Transformer in compiled code, for processors: C sources, their build, loading, and packing of weights."""
