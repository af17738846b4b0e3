"""A log as text: cleaned, unpacked, cut to blocks, masked, and what each line says of its time and its task."""
