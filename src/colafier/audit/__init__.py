"""What is wrong with the labels: how likely, how many, and what to do with each row."""
