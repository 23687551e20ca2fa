"""Settings, registry, errors, files, cache and random streams: what everything stands on."""
