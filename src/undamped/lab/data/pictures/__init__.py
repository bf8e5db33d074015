"""Pictures of one's own: files, folders and arrays of them, read and checked."""
