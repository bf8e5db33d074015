"""What the catalogue lists, by kind of data."""
