"""The data sets of the paper, label noise injected into them, and safe loading of their files."""
