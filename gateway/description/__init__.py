"""The protocol as OpenAPI and AsyncAPI documents."""
