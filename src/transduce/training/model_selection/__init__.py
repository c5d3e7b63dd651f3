"""The model that a run keeps: validation, averages of weights, early stopping, and what is measured at the end."""
