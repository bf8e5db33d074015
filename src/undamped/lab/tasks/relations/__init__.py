"""Tasks about relations between the images of a trial."""
