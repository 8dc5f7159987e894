"""The exercises of the course, one file a chapter, named as the chapter is."""
