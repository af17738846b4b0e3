"""A package is not installed in the environment of the job; each rank meets it."""
#: cause = ["import"]
#: anywhere = true
#: rank = "any"
#: verdict = "stop"
#: message = "ModuleNotFoundError: No module named 'einops_exts'"
#: frame = "missing_module.py\", line"

import einops_exts  # noqa: F401
