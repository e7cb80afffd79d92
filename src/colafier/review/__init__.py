"""A person's decisions about rows, and the exchange of rows with labeling tools."""
