"""What a person decided, and the exchange with labeling tools."""
