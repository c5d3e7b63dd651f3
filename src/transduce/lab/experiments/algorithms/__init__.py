"""Learning algorithms from examples: Neural GPU, Extended Neural GPU and Transformer on the same sequences."""
