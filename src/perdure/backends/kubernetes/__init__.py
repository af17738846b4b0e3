"""Kubernetes through its HTTP API: Jobs, JobSets and PyTorchJobs whose owners opted in by a label.

`backend` is what the rest of Perdure uses. `api` speaks HTTP; `mirror` keeps what a list and a watch tell; `runs`,
`attempts`, `workloads`, `nodes` and `picture` make jobs and attempts of it and are pure; `plans` says what to change
for an action, `actor` changes it, and `lease` sees to it that one service does.
"""
