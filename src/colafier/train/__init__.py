"""The harness around a method: steps over several processes, the loop, metrics and records."""
