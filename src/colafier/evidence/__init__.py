"""What speaks for and against a label: out-of-fold predictions and a noise model."""
