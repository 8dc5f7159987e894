"""The exercises of the course, one file per chapter, with the chapter's name."""
