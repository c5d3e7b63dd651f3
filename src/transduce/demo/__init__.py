"""The demonstration: parallel text made on the spot, a small model trained on it, and a test on what it never saw."""

from transduce.demo.demonstration import DemonstrationResult, demonstrate
from transduce.demo.sentences import UNSEEN_DIGEST, check_unseen_pairs, sentence_pairs, training_pairs, unseen_pairs

__all__ = [
    "UNSEEN_DIGEST",
    "DemonstrationResult",
    "check_unseen_pairs",
    "demonstrate",
    "sentence_pairs",
    "training_pairs",
    "unseen_pairs",
]
