"""Perdure's own handlers: one function a way of recovering, named in the playbook."""
