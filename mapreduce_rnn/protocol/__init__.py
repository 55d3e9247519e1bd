"""What the master and its workers say to each other, and how it gets across."""
