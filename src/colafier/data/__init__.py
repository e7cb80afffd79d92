"""Rows to learn from: sources, label noise, augmented views, and the training set."""
