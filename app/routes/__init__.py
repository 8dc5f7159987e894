"""What the page asks the server, one file a tab."""
