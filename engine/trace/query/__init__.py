"""Questions to a run: conditions, titles, summary, tables, repeats and how exact its text is."""
