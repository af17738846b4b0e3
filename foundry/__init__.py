"""Small programs that really fail, their truth known by construction, run and recorded to train and test triage."""
