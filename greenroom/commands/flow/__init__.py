"""The commands of `greenroom flow`."""
