"""One update of the weights: the loss of a batch, its gradients, and the step of the optimiser that they lead to."""
