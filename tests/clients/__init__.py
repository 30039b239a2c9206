"""The clients in Python and JavaScript, against the real gateway and the real engine."""
