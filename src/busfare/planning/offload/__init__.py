"""What lives on the host: schedules of streamed layers, networks as layers (`shapes`, `network`), KV caches (`kv`)."""
