"""The server: HTTP, authentication, the API's description."""
