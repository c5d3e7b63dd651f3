"""A parallel text in memory, as checks need it: words as numbers, hashes of lines, places in the files."""
