"""The libraries of the console: which versions, and how their bundles are made."""
