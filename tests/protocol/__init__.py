"""What is said: the pure part of Greenroom, tested as data."""
