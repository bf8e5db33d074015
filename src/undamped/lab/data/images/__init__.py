"""Images of the user: files, folders and arrays, read and checked."""
