"""Export doubtful rows to labeling tools, and import the labels that people set there."""
