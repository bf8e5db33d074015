"""Downloads, package registries and archives."""
