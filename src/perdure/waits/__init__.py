"""When a waiting job will start: predictors of the rest of its wait behind one protocol, and their evaluation."""
