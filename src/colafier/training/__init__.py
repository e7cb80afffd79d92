"""The training loop around a method: batches, optimizer steps, processes, checkpoints, metrics."""
