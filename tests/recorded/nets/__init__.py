"""What whole runs answer: replays, reports, studies, solvers. Each module has `cases`, which names them."""
