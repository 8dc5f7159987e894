"""One step of decoding: draft, verdict and commit, what parts are told, and the base of every family."""
