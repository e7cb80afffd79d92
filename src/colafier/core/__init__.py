"""The paper: each equation in one function, and one training step as a pure function."""
