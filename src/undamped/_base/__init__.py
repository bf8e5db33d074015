"""What every other package builds on: errors, options, the registry, contracts, promises."""
