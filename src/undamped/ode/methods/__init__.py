"""The methods: one file each, entered in the registry by a decorator."""
