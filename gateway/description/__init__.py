"""The OpenAPI and AsyncAPI documents."""
