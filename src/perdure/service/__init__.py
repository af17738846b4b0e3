"""The running service: controller (pure), journal, executor, HTTP API, dashboard, metrics."""
