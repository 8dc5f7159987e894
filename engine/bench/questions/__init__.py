"""What is asked and how answers are scored; results that grow question by question."""
