"""Answering questions about short stories: the end-to-end memory network and the Transformer on the same questions."""
