"""How bytes get here: the web, archives, packages."""
