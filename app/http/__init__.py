"""What may come in over HTTP, and how the server starts."""
