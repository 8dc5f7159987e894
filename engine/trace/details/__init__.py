"""Records of a step that belong to some strategies alone."""
