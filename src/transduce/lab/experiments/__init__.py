"""The experiments, one package each: the networks, the tasks, and functions that train and measure."""
