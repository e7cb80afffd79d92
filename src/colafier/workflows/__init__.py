"""Complete runs (purify, train, apply, predict, check, export), and the folder of a run."""
