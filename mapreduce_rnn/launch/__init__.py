"""Starting worker processes and choosing their devices."""
