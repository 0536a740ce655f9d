"""Ways to run it: the demo, and how its recording is made."""
