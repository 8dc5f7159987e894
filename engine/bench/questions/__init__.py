"""Questions and the scores of their answers; results that grow question by question."""
