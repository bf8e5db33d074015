"""Tables of text: rows, columns, values, and series made of them."""
