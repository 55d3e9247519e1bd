"""Worker processes: one device, one task at a time."""
