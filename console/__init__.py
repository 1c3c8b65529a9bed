"""The web console: static files, and the routes that serve them. It knows the service only through its HTTP API."""
