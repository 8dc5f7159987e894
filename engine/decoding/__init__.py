"""One step of decoding: draft, verdict and commit, the data that parts receive, and the base class of every family."""
