"""Diagnosis of a run: figures of text, model and translations, and the checks that turn them into findings."""
