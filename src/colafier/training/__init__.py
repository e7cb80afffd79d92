"""The loop around a method: batches of views, optimizer steps, processes, checkpoints, metrics."""
