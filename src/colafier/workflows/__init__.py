"""Whole runs: purify, train, apply, serve; and the folder that each one leaves."""
