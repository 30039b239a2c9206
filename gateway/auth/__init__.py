"""Who may use the gateway: tokens and what they are limited to, origins, and what strangers may use."""
