"""Training one model in several processes: ranks, sharding, micro-batches, and the batches that the ranks share."""
