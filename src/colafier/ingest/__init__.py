"""A user's folder, table, texts or arrays as one Dataset, and the way back."""
