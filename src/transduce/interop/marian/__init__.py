"""Marian: .npz files with its settings and vocabularies; written and read."""
