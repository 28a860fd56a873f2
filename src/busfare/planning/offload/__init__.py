"""What lives on the host: schedules of streamed layers (`schedule`), networks as layers (`shapes`, `network`), KV caches (`kv`)."""
