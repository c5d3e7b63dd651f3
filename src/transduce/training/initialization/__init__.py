"""Weights that training starts from, where not all are random: embeddings made from the text, or another model."""
