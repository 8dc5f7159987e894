"""Where drafts died, over several runs."""
