"""Whether source and target belong together: a lexicon learned from the text, shifts of lines, and single pairs."""
