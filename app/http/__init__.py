"""What requests are allowed over HTTP, and how the server starts."""
