"""One module per format that can be imported into a store."""
