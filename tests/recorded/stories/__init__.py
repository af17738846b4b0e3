"""What parts that keep a state do when much happens to them: a drawn story a case, told in words, line by line."""
