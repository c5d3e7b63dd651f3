"""Engines: token ids to hypotheses."""
