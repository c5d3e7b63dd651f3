"""Hugging Face Transformers: Marian and Pegasus models as folders; written and read."""
