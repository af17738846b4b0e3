"""The dashboard: pages rendered here, kept alive by htmx, drawn without any inline script or style."""
