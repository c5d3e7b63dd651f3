"""The SHA-256 of a file: how a changed or damaged one is noticed."""

import hashlib
from pathlib import Path


def file_digest(path: Path) -> str:
    """SHA-256 of the bytes of the file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
