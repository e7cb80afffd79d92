"""Files from outside, which may be damaged or hostile: one reader for each kind of file."""
