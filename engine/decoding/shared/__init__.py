"""What several strategies and drafters use: canvases, threads, branches, and how long passes take."""
