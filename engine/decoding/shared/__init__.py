"""Code that several strategies and drafters share: canvases, threads, branches, and pass times."""
