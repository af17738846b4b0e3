"""What-if questions over the web: what may be asked, the process that answers, and the answers that are kept."""
