"""Probabilities and observed labels in, decisions out, whatever made the probabilities."""
