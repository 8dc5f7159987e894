"""The app: command line, server and page."""
