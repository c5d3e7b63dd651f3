"""How far a translation can be trusted: scores, calibration, alignment, and checks of its text."""
