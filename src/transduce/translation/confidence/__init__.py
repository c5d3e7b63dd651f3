"""Quality estimates of translations: scores, calibration, alignment, and checks of the text."""
