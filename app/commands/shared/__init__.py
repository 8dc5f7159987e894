"""What several commands share: prompts, output, and the run that a command makes."""
