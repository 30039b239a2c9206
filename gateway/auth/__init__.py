"""Authentication and authorization: tokens and their limits, origins, limits before authentication."""
